#pragma once

// Sizes and numbers as people read them.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/text/units.hpp>

namespace torchtap::views::trace::detail {

using text::bytes_text;
using text::count_text;
using text::counted;

/// "1x64x55x55"; "()" for a scalar.
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  return text::shape_text(shape, "()");
}

}  // namespace torchtap::views::trace::detail
