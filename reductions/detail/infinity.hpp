// Defines infinity and NaN in the dtype of states.
#pragma once

#include <limits>

namespace torchtap::reductions::detail {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace torchtap::reductions::detail
