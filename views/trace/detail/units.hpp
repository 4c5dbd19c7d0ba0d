#pragma once

// Sizes and numbers as people read them.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/core/detail/units.hpp>

namespace torchtap::views::trace::detail {

using core::detail::bytes_text;
using core::detail::count_text;
using core::detail::counted;

/// "1x64x55x55"; "()" for a scalar.
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  return core::detail::shape_text(shape, "()");
}

}  // namespace torchtap::views::trace::detail
