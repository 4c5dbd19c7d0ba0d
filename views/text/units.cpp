#include <array>
#include <cmath>
#include <cstdio>

#include <torchtap/views/text/units.hpp>

namespace torchtap::views::text {

std::string count_text(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t place = text.size(); place > sign + 3;) text.insert(place -= 3, ",");
  return text;
}

std::string counted(std::int64_t number, const std::string& word) {
  return count_text(number) + " " + word + (number == 1 ? "" : "s");
}

std::string bytes_text(std::int64_t bytes) {
  static const std::array<const char*, 6> units{"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; std::abs(value) >= 999.95 && unit + 1 < units.size(); ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape, const char* scalar) {
  if (shape.empty()) return scalar;
  std::string text;
  for (const auto size : shape) {
    text += (text.empty() ? "" : "x") + (size < 0 ? std::string("?") : std::to_string(size));
  }
  return text;
}

std::string bar_text(double length, bool ascii) {
  if (ascii) return std::string(static_cast<std::size_t>(std::lround(length)), '#');
  static const std::array<const char*, 8> parts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto whole = static_cast<std::size_t>(length);
  std::string text;
  for (std::size_t i = 0; i < whole; ++i) text += "█";
  return text + parts[static_cast<std::size_t>((length - static_cast<double>(whole)) * 8)];
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"') quoted += '"';
    quoted += letter;
  }
  return quoted + "\"";
}

}  // namespace torchtap::views::text
