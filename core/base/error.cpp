// Finds the names that are nearest to a wanted one, and quotes lists of names, for error messages.

#include <algorithm>
#include <numeric>

#include <torchtap/base/error.hpp>

namespace torchtap::base {
namespace {

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 == 0: the whole path
}

}  // namespace

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::vector<std::string> nearest(const std::string& wanted, const std::vector<std::string>& candidates,
                                 std::size_t most) {
  std::vector<std::pair<std::size_t, const std::string*>> ranked;
  ranked.reserve(candidates.size());
  for (const auto& candidate : candidates) {
    ranked.emplace_back(std::min(edit_distance(wanted, candidate),
                                 edit_distance(last_component(wanted), last_component(candidate)) + 1),
                        &candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (const auto& [distance, candidate] : ranked) {
    if (best.size() == most) break;
    best.push_back(*candidate);
  }
  return best;
}

std::string quoted(const std::vector<std::string>& names) {
  if (names.empty()) return "(none)";
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i != 0) text += i + 1 == names.size() ? " and " : ", ";
    text += '"' + names[i] + '"';
  }
  return text;
}

std::string first_line(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace torchtap::base
