// Matches the paths and aliases of modules against a regular expression.

#include <algorithm>

#include <torchtap/selectors/regex.hpp>

namespace torchtap::selectors {

Selector names(const std::regex& expression) {
  return Selector(
      [expression](const model::ModuleRef& module) {
        const auto matches = [&](const std::string& path) { return std::regex_match(path, expression); };
        return matches(module.path()) ||
               std::any_of(module.aliases().begin(), module.aliases().end(), matches);
      },
      "names(regex)");
}

}  // namespace torchtap::selectors
