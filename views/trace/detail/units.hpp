#pragma once

// Sizes as people read them.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

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

/// "1x64x55x55"; "()" for a scalar.
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return shape.empty() ? "()" : text;
}

/// "61,100,840".
inline std::string count_text(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t place = text.size(); place > sign + 3;) text.insert(place -= 3, ",");
  return text;
}

}  // namespace torchtap::views::trace::detail
