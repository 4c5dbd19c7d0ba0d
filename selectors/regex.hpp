#pragma once

/// Selects modules by a regular expression.

#include <regex>

#include <torchtap/base/api.hpp>
#include <torchtap/selectors/selector.hpp>

namespace torchtap::selectors {

/// Modules whose whole path (or an alias) matches the regular expression. Apart from the other selectors, as
/// `<regex>` takes half a second to compile.
TORCHTAP_API Selector names(const std::regex& expression);

}  // namespace torchtap::selectors
