#pragma once

#include <regex>
#include <string>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/selectors/selectors.hpp>

/// Maps --types, --names and their negations to selectors. Header-only: the preload agent uses it too.
namespace torchtap::tools {

struct Which {
  std::string types,
      not_types;  ///< regular expressions on whole type names; empty: all (included), none (excluded)
  std::vector<std::string> names, not_names;  ///< globs on paths; empty: all (included), none (excluded)
};

inline std::regex types_expression(const std::string& option, const std::string& expression) {
  try {
    return std::regex(expression);
  } catch (const std::regex_error& error) {
    TORCH_CHECK_VALUE(false, option, " '", expression, "' is not a valid regular expression: ", error.what(),
                      ".");
  }
}

/// Selects modules whose type matches the whole regular expression: the short name ("Linear") or, if no short
/// name among `modules` matches, the qualified one ("__torch__.torch.nn.modules.linear.Linear").
///
/// Never both: "(?!Dropout).*" excludes the short name Dropout but matches every qualified name.
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

/// The selector of `which` for `modules`, all modules of a model. Pass none for C++ modules, which are not
/// known in advance and whose types have only one name.
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
