#pragma once

// Sizes as people read them.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <torchtap/core/detail/units.hpp>

namespace torchtap::views::trace::detail {

/// "253.5 KB"; a KB is 1024 bytes.
inline std::string size_text(std::int64_t bytes) {
  static constexpr const char* units[]{"KB", "MB", "GB", "TB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double number = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (number >= 1024 && unit < 3) {
    number /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ", number);
  return text + std::string(units[unit]);
}

using core::detail::count_text;

/// "1x64x55x55"; "()" for a scalar.
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  return core::detail::shape_text(shape, "()");
}

}  // namespace torchtap::views::trace::detail
