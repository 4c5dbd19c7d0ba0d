#include "csv.hpp"

#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <torchtap/views/text/units.hpp>

namespace torchtap::tools {
namespace {

std::string plain(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& item : value) text += (text.empty() ? "" : " ") + plain(item);
  return text;
}

template <class Visit>
void each_cell(const Json& object, const std::string& prefix, const Visit& visit) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      each_cell(value, prefix + key + ".", visit);
    } else {
      visit(prefix + key, value);
    }
  }
}

}  // namespace

void print_csv(const Json& rows) {
  std::vector<std::string> titles;
  std::set<std::string> known;
  for (const auto& row : rows) {
    each_cell(row, "", [&](const std::string& title, const Json&) {
      if (known.insert(title).second) titles.push_back(title);
    });
  }
  const auto line = [&](const auto& cell) {
    for (std::size_t i = 0; i < titles.size(); ++i)
      std::cout << (i == 0 ? "" : ",") << views::text::csv_text(cell(titles[i]));
    std::cout << '\n';
  };
  line([](const std::string& title) { return title; });
  for (const auto& row : rows) {
    std::map<std::string, std::string> cells;
    each_cell(row, "", [&](const std::string& title, const Json& value) { cells[title] = plain(value); });
    if (const auto path = cells.find("path"); path != cells.end() && path->second.empty())
      path->second = "(root)";
    line([&](const std::string& title) { return cells[title]; });
  }
}

}  // namespace torchtap::tools
