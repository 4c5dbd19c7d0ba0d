// Reads and writes numbers in text, by what C++ has for that without locales.
#include <algorithm>
#include <array>
#include <charconv>

#include <torchtap/base/numbers.hpp>

namespace torchtap::base {
namespace {

std::string written(double value, std::chars_format format, int precision) {
  std::array<char, 400> text{};  // the largest number has 309 digits before its point
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, format, std::min(precision, 80)).ptr;
  return {text.data(), end};
}

}  // namespace

std::optional<double> number_of(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error != std::errc()) return std::nullopt;
  return value;
}

std::string number_text(double value, int digits) {
  return written(value, std::chars_format::general, digits);
}

std::string fixed_text(double value, int decimals) {
  return written(value, std::chars_format::fixed, decimals);
}

}  // namespace torchtap::base
