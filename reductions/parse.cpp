#include <sstream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/detail/catalogue.hpp>

namespace torchtap::reductions {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  if (!text.empty() && text.back() == separator) parts.emplace_back();
  return parts;
}

/// "histogram" of "histogram:BINS[:LOW:HIGH]".
std::string word_of(const std::string& usage) {
  return usage.substr(0, usage.find_first_of(":["));
}

Any parse_one(const std::string& text, const ParseOptions& options) {
  detail::Arguments given = split(text, ':');
  const std::string word = given.empty() ? "" : given.front();
  std::string usages;
  for (const auto& one : detail::all_named()) {
    usages += (usages.empty() ? "" : " ") + one.entry.usage;
    if (word_of(one.entry.usage) != word) continue;
    given.erase(given.begin());
    TORCH_CHECK_VALUE(given.size() >= one.least && given.size() <= one.most, "reductions::parse: \"", text,
                      "\" has ", given.size(), " arguments; expected ", one.entry.usage, ".");
    try {
      return one.make(given, options);
    } catch (c10::Error& error) {
      TORCH_CHECK_VALUE(false, "reductions::parse: \"", text, "\": ", error.msg(), "; expected ",
                        one.entry.usage, ".");
    }
  }
  TORCH_CHECK_VALUE(false, "reductions::parse: \"", word, "\" is not a reduction; expected one or more of ",
                    usages, ", separated by commas.");
}

}  // namespace

Any parse(const std::string& text, const ParseOptions& options) {
  std::vector<Any> members;
  for (const auto& part : split(text, ',')) members.push_back(parse_one(part, options));
  TORCH_CHECK_VALUE(!members.empty(),
                    "reductions::parse: no reduction was named; expected one or more, such as ",
                    "\"mean,histogram:64\".");
  if (members.size() == 1) return std::move(members.front());
  return AnySeries(std::move(members));
}

std::vector<CatalogueEntry> catalogue() {
  std::vector<CatalogueEntry> entries;
  for (const auto& one : detail::all_named()) entries.push_back(one.entry);
  return entries;
}

}  // namespace torchtap::reductions
