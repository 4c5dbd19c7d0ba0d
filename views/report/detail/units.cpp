#include <cmath>
#include <cstddef>
#include <cstdio>
#include <initializer_list>

#include <torchtap/views/report/detail/units.hpp>

namespace torchtap::views::report::detail {
namespace {

/// `value` in the largest of the units, each 1000 times the one before, that leaves a digit before the point.
std::string scaled(double value, std::initializer_list<const char*> units, const char* gap, bool whole) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const char* const* unit = units.begin();
  const char* const* first = unit;
  for (; std::abs(value) >= 999.5 && unit + 1 != units.end(); ++unit) value /= 1000;
  const double size = std::abs(value);
  const bool plain = whole && unit == first;
  char text[40];
  std::snprintf(text, sizeof text, "%.*f%s%s",
                plain || size >= 99.95 ? 0
                : size >= 9.995        ? 1
                                       : 2,
                value, **unit != '\0' ? gap : "", *unit);
  return text;
}

}  // namespace

std::string amount_text(std::int64_t number, const char* gap) {
  return scaled(static_cast<double>(number), {"", "k", "M", "G", "T", "P", "E"}, gap, true);
}

std::string duration_text(double seconds, bool ascii, const char* gap) {
  return scaled(seconds * 1e9, {"ns", ascii ? "us" : "µs", "ms", "s"}, gap, true);
}

}  // namespace torchtap::views::report::detail
