#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include <torchtap/base/numbers.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::text {
namespace {

/// `value` with three digits, in the largest of the units that leaves a digit before the point. The first has
/// no fractions.
template <std::size_t N>
std::string scaled(double value, const char* const (&units)[N]) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  std::size_t unit = 0;
  for (; std::abs(value) >= 999.5 && unit + 1 < N; ++unit) value /= 1000;
  const double size = std::abs(value);
  const int decimals = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return base::fixed_text(value, decimals) + (*units[unit] != '\0' ? " " : "") + units[unit];
}

/// With milliseconds behind `format`'s seconds.
std::string time_text(std::int64_t time_ns, decltype(&::gmtime_r) parts_of, const char* format) {
  const std::time_t seconds = time_ns / 1'000'000'000;
  std::tm parts{};
  parts_of(&seconds, &parts);
  char text[64];
  const std::size_t size = std::strftime(text, sizeof text, format, &parts);
  std::snprintf(text + size, sizeof text - size, ".%03d", static_cast<int>(time_ns / 1'000'000 % 1000));
  return text;
}

}  // namespace

std::string count_text(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t place = text.size(); place > sign + 3;) text.insert(place -= 3, 1, ',');
  return text;
}

std::string amount_text(std::int64_t number) {
  return scaled(static_cast<double>(number), {"", "k", "M", "G", "T", "P", "E"});
}

std::string counted(std::int64_t number, const std::string& word) {
  return count_text(number) + " " + word + (number == 1 ? "" : "s");
}

std::string bytes_text(std::int64_t bytes) {
  static const std::array<const char*, 6> units{"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; std::abs(value) >= 999.95 && unit + 1 < units.size(); ++unit) value /= 1000;
  return base::fixed_text(value, unit == 0 ? 0 : 1) + " " + units[unit];
}

std::string duration_text(double seconds, bool ascii) {
  if (seconds < 59.95 || !std::isfinite(seconds))
    return scaled(seconds * 1e9, {"ns", ascii ? "us" : "µs", "ms", "s"});
  const std::int64_t all = std::llround(std::min(seconds, 1e15)), minutes = all / 60;
  if (all < 3600) return std::to_string(minutes) + " min " + std::to_string(all % 60) + " s";
  return count_text(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

std::string utc_text(std::int64_t time_ns) {
  return time_text(time_ns, ::gmtime_r, "%Y-%m-%dT%H:%M:%S") + "Z";
}

std::string clock_text(std::int64_t time_ns) {
  return time_text(time_ns, ::localtime_r, "%H:%M:%S");
}

std::string type_text(const std::string& type) {
  std::string name = type.substr(0, type.find('<'));
  name.erase(0, name.find_last_of(":.") + 1);  // npos + 1 == 0
  if (name.size() > 4 && name.compare(name.size() - 4, 4, "Impl") == 0) name.erase(name.size() - 4);
  return name;
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
