#include "colours.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include <torchtap/base/error.hpp>

#include "plain.hpp"

namespace torchtap::tools::pictures {
namespace {

using Map = std::array<Colour, 256>;

std::uint8_t byte(double value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
}

/// Viridis, as polynomials by Matt Zucker (public domain).
Map make_viridis() {
  constexpr double kTerms[7][3] = {
      {0.2777273272, 0.0054073445, 0.3340998053},   {0.1050930431, 1.4046135300, 1.3845901621},
      {-0.3308618287, 0.2148475595, 0.0950951630},  {-4.6342304990, -5.7991009730, -19.3324409563},
      {6.2282699363, 14.1799333668, 56.6905526007}, {4.7763849976, -13.7451453777, -65.3530326334},
      {-5.4354558559, 4.6458526122, 26.3124352496}};
  Map map{};
  for (std::size_t i = 0; i < map.size(); ++i) {
    const double t = static_cast<double>(i) / 255;
    for (std::size_t channel = 0; channel < 3; ++channel) {
      double value = 0;
      for (std::size_t k = 7; k-- > 0;) value = value * t + kTerms[k][channel];
      map[i][channel] = byte(value * 255 + 0.5);
    }
  }
  return map;
}

/// Blue below 0, white at 0, red above.
Map make_diverging() {
  Map map{};
  for (std::size_t i = 0; i < map.size(); ++i) {
    const double side = static_cast<double>(i) / 127.5 - 1;
    const double far = std::abs(side);
    map[i] = {byte(255 * (side < 0 ? 1 - far : 1 - 0.3 * far)), byte(255 * (1 - far)),
              byte(255 * (side > 0 ? 1 - far : 1 - 0.3 * far))};
  }
  return map;
}

const Map& map_of(bool diverges) {
  static const Map one_sign = make_viridis();
  static const Map both_signs = make_diverging();
  return diverges ? both_signs : one_sign;
}

}  // namespace

namespace detail {

at::Tensor plain(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kCPU);
  return (values.is_complex() ? values.abs() : values).to(at::kDouble).contiguous();
}

}  // namespace detail

const Colour& viridis(double share) {
  return map_of(false)[static_cast<std::size_t>(std::clamp(share * 255, 0.0, 255.0))];
}

Range::Range(double low, double high) : empty_(false), fixed_(true), low_(low), high_(high) {
  TORCH_CHECK_VALUE(std::isfinite(low) && std::isfinite(high) && low < high, "pictures::Range: from ", low,
                    " to ", high, " is no range; expected two finite numbers, the smaller first.");
}

void Range::widen(const at::Tensor& values) {
  if (fixed_ || values.numel() == 0) return;
  const at::Tensor all = detail::plain(values);
  const double* const begin = all.data_ptr<double>();
  std::vector<double> finite;
  finite.reserve(static_cast<std::size_t>(all.numel()));
  std::copy_if(begin, begin + all.numel(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  if (finite.empty()) return;
  const auto quantile = [&](double q) {
    const auto index = static_cast<std::ptrdiff_t>(std::lround(q * static_cast<double>(finite.size() - 1)));
    std::nth_element(finite.begin(), finite.begin() + index, finite.end());
    return finite[static_cast<std::size_t>(index)];
  };
  const double low = quantile(0.001);
  const double high = quantile(0.999);
  low_ = empty_ ? low : std::min(low_, low);
  high_ = empty_ ? high : std::max(high_, high);
  empty_ = false;
}

Palette::Palette(const Range& range) : map_(map_of(range.diverges())) {
  const double far = std::max(std::abs(range.low()), std::abs(range.high()));
  low_ = range.diverges() ? -far : range.low();
  high_ = range.diverges() ? far : range.high();
  scale_ = high_ > low_ ? 255 / (high_ - low_) : 0;
}

const Colour& Palette::operator()(double value) const {
  if (std::isnan(value)) return kNan;
  if (std::isinf(value)) return kInfinite;
  return map_[static_cast<std::size_t>(std::clamp((value - low_) * scale_, 0.0, 255.0))];
}

}  // namespace torchtap::tools::pictures
