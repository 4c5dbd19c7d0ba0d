#pragma once

/// The colours of values: viridis for values of one sign, from blue over white at 0 to red for both, and two
/// separate colours for values that are not finite.

#include <ATen/core/Tensor.h>

#include <array>

#include "image.hpp"

namespace torchtap::tools::pictures {

inline constexpr Colour kNan{255, 0, 255};
inline constexpr Colour kInfinite{255, 160, 0};

/// The values that the ends of a colour map stand for: widened by each tensor and never narrowed, so that
/// pictures that follow each other do not flicker. The outermost thousandth at either end does not count.
/// Takes any dtype of numbers; complex ones by their absolute values.
class Range {
 public:
  Range() = default;
  /// A fixed range, which `widen` does not change. Throws `c10::ValueError` unless `low < high`, both finite.
  Range(double low, double high);
  /// Takes the finite values in.
  void widen(const at::Tensor& values);
  bool empty() const noexcept { return empty_; }
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }
  /// Whether there are values of both signs, which a map that diverges from 0 shows.
  bool diverges() const noexcept { return low_ < 0 && high_ > 0; }

 private:
  bool empty_ = true;
  bool fixed_ = false;
  double low_ = 0, high_ = 0;
};

/// The colours of a range. Values beyond it have the colours of its ends.
class Palette {
 public:
  explicit Palette(const Range& range);
  const Colour& operator()(double value) const;
  /// The values at the ends: the range's, or ±the larger of them if it diverges.
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }

 private:
  const std::array<Colour, 256>& map_;
  double low_ = 0, high_ = 0, scale_ = 0;
};

/// The colour of a share from 0 to 1 in viridis.
const Colour& viridis(double share);

}  // namespace torchtap::tools::pictures
