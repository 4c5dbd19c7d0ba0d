// Lists the formats, and what the loops need to know of each.

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/detail/format_loops.hpp>

namespace torchtap::reductions::detail {

const std::vector<FloatFormat>& float_formats() {
  using Scale = FloatFormat::Scale;
  static const std::vector<FloatFormat> all{
      {"e4m3", Scale::given, false, 3, -6, 448},  // OCP OFP8: no infinity, so 480 is NaN
      {"e5m2", Scale::given, false, 2, -14, 57344},    {"bf16", Scale::given, false, 7, -126, 0x1.FEp127},
      {"f16", Scale::given, false, 10, -14, 65504},    {"int8", Scale::given, true, 0, 0, 127},
      {"mxfp8", Scale::mx, false, 3, -6, 448},         {"nvfp4", Scale::nv, false, 1, 0, 6},
      {"mxfp8_e5m2", Scale::mx, false, 2, -14, 57344}, {"mxfp4", Scale::mx, false, 1, 0, 6},
  };
  return all;
}

const FloatFormat& find_float_format(const std::string& name) {
  std::string names;
  for (const auto& format : float_formats()) {
    if (name == format.name) return format;
    names += std::string(names.empty() ? "" : ", ") + format.name;
  }
  TORCH_CHECK_VALUE(false, "\"", name, "\" is no format; there are ", names, ".");
}

double FloatFormat::quantum(double magnitude) const noexcept {
  if (whole) return 1;
  const int exponent = magnitude == 0 ? min_exponent : std::max(std::ilogb(magnitude), min_exponent);
  return std::ldexp(1.0, exponent - mantissa_bits);
}

double FloatFormat::rounded(double magnitude) const noexcept {
  const double unit = quantum(magnitude);
  return std::nearbyint(magnitude / unit) * unit;
}

void FormatColumns::clear(std::size_t formats, std::int64_t n) {
  const auto empty = [n](auto* numbers) { std::fill_n(numbers, n, 0); };
  of_formats.resize(formats);
  empty(squares);
  empty(abs_max);
  for (auto* counts : {zeros, nan, infinities}) empty(counts);
  for (auto& of : of_formats) {
    empty(of.squared_error);
    for (auto* counts : {of.underflow, of.subnormal, of.overflow}) empty(counts);
  }
}

FormatLoop::FormatLoop(const FloatFormat& format, float scale)
    : scaling(format.scaling),
      whole(format.whole),
      mantissa_bits(format.mantissa_bits),
      min_exponent(format.min_exponent),
      scale(scale),
      max(static_cast<float>(format.max)) {
  // Of a number half way between two neighbours the even one is next.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  underflow = std::nextafter(static_cast<float>(format.quantum(0) / 2), kInfinity);
  normal =
      whole ? underflow : static_cast<float>(std::ldexp(1.0, format.min_exponent) - format.quantum(0) / 2);
  large = static_cast<float>(format.max + format.quantum(format.max) / 2);
  if (format.rounded(static_cast<double>(large)) == format.max) large = std::nextafter(large, kInfinity);
}

}  // namespace torchtap::reductions::detail
