#pragma once

#include <regex>
#include <string>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <vector>

/// Which modules, as it is asked for in words. A header alone: also for what is loaded into programs.
namespace torchtap::tools {

struct Which {
  std::string types, not_types;               ///< regular expressions on whole type names; empty: all, none
  std::vector<std::string> names, not_names;  ///< globs on paths; empty: all, none
};

inline std::regex types_expression(const std::string& option, const std::string& expression) {
  try {
    return std::regex(expression);
  } catch (const std::regex_error& error) {
    TORCH_CHECK_VALUE(false, option, " '", expression, "' is no regular expression: ", error.what(), ".");
  }
}

/// Modules whose type matches the regular expression as a whole: its short name ("Linear"), or, where no
/// short name among `modules` matches, its qualified one ("__torch__.torch.nn.modules.linear.Linear").
///
/// Never both: "(?!Dropout).*" is to leave out what is called Dropout, and matches every qualified name.
inline selectors::Selector matching_types(const std::string& option, const std::string& expression,
                                          const std::vector<model::ModuleRef>& modules) {
  const std::regex types = types_expression(option, expression);
  bool any_short = modules.empty();
  for (const auto& module : modules) any_short = any_short || std::regex_match(module.type(), types);
  return selectors::Selector(
      [types, any_short](const model::ModuleRef& module) {
        return std::regex_match(any_short ? module.type() : module.qualified_type(), types);
      },
      option + " '" + expression + "'");
}

/// What `which` means for these modules, which are all that a model has; without any, for modules of C++, of
/// which nobody knows all beforehand, and whose types have one name alone.
inline selectors::Selector selector_of(const Which& which, const std::vector<model::ModuleRef>& modules) {
  selectors::Selector selector;
  if (!which.types.empty()) selector = selector && matching_types("--types", which.types, modules);
  if (!which.names.empty()) selector = selector && selectors::names(which.names);
  if (!which.not_types.empty())
    selector = selector && !matching_types("--not-types", which.not_types, modules);
  if (!which.not_names.empty()) selector = selector && !selectors::names(which.not_names);
  return selector;
}

}  // namespace torchtap::tools
