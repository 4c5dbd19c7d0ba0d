#pragma once

/// Defines the parts of the summarising kernels that use no vectors, compiled once.

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions::detail {

/// Calls `f` with a null pointer to the C++ type of `type`.
template <class F>
void with_type(c10::ScalarType type, F&& f) {
  switch (type) {
    case c10::ScalarType::Float:
      return f(static_cast<float*>(nullptr));
    case c10::ScalarType::Double:
      return f(static_cast<double*>(nullptr));
    case c10::ScalarType::Half:
      return f(static_cast<c10::Half*>(nullptr));
    case c10::ScalarType::BFloat16:
      return f(static_cast<c10::BFloat16*>(nullptr));
    default:
      return;  // callers only ask for these four
  }
}

template <class T>
double widened(T x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return static_cast<double>(static_cast<float>(x));
  }
}

/// Two passes, element by element. The fallback for data that the fast loops cannot handle: non-finite
/// elements, and a mean far from the assumed one.
template <class T>
Summary summarize_carefully(const T* x, std::size_t n, std::size_t stride) {
  Summary result;
  for (std::size_t i = 0; i < n; ++i) {
    const double value = widened(x[i * stride]);
    if (std::isfinite(value)) {
      ++result.taken;
      result.sum += value;
      result.min = std::min(result.min, value);
      result.max = std::max(result.max, value);
      result.zeros += value == 0.0 ? 1 : 0;
    } else {
      ++(std::isnan(value) ? result.nan
         : value > 0       ? result.positive_infinities
                           : result.negative_infinities);
    }
  }
  if (result.taken == 0) return result;
  result.mean = result.min == result.max ? result.min : result.sum / static_cast<double>(result.taken);
  for (std::size_t i = 0; i < n; ++i) {
    const double value = widened(x[i * stride]);
    if (!std::isfinite(value)) continue;
    const double deviation = value - result.mean;
    const double square = deviation * deviation;
    result.m2 += square;
    result.m3 += square * deviation;
    result.m4 += square * square;
  }
  return result;
}

/// The frame of reference of powers: (x - shift) * scale. The nearer the shift is to the mean, the fewer
/// digits cancel out. The scale, a power of two, keeps fourth powers within the range of float32.
struct Frame {
  double shift = 0.0, scale = 1.0;

  /// A frame for numbers with this mean and spread.
  static Frame around(double mean, double spread) {
    Frame frame;
    // Rounded to float so that its multiples are exact.
    const auto rounded = static_cast<double>(static_cast<float>(mean));
    if (std::isfinite(rounded)) frame.shift = rounded;
    if (std::isfinite(spread) && spread > 0)
      frame.scale = std::ldexp(1.0, -std::clamp(std::ilogb(spread), -100, 100));
    return frame;
  }

  /// A frame estimated from a few elements spread over the range.
  template <class T>
  static Frame of(const T* x, std::size_t n, std::size_t stride) {
    constexpr std::size_t kProbes = 16;
    double probes[kProbes], mean = 0.0, spread = 0.0;
    for (std::size_t i = 0; i < kProbes; ++i) mean += probes[i] = widened(x[i * n / kProbes * stride]);
    // The next chunk of memory is most likely requested next.
    for (std::size_t i = 0; i < kProbes; ++i) hwy::Prefetch(x + (n + i * n / kProbes) * stride);
    mean /= kProbes;
    for (const double probe : probes) spread = std::max(spread, std::abs(probe - mean));
    return around(mean, spread);
  }
};

/// Sums of powers in a frame, computed in lanes of type L.
struct Powers {
  double s1 = 0.0, s2 = 0.0, s3 = 0.0, s4 = 0.0;

  /// Converts them into central moments of `n` elements. `out` already has the extrema. Returns false if that
  /// would lose too many digits: the contribution of the shift's offset to the sum of fourth powers cancels
  /// out again.
  template <class L>
  bool central(std::size_t n, const Frame& frame, Summary* out) const {
    constexpr bool kFloat = std::is_same_v<L, float>;
    const auto count = static_cast<double>(n);
    const double offset = s1 / count, size = 1 / frame.scale;
    const double m2 = s2 - s1 * offset;
    const double m3 = s3 - 3 * offset * s2 + 2 * s1 * offset * offset;
    const double m4 = s4 - 4 * offset * s3 + 6 * offset * offset * s2 - 3 * s1 * offset * offset * offset;
    out->taken = static_cast<std::int64_t>(n);
    out->sum = count * frame.shift + s1 * size;
    out->mean = frame.shift + offset * size;
    out->m2 = m2 * size * size;
    out->m3 = m3 * size * size * size;
    out->m4 = m4 * size * size * size * size;
    if (!std::isfinite(s4) || !(s1 * offset <= (kFloat ? 2.0 : 64.0) * m2)) return false;  // or NaN
    return !kFloat || out->min == out->max || (m2 > 0x1p-40 * count && m2 < 0x1p40 * count);
  }
};

/// T itself, or float32 for half types.
template <class T>
using OwnLane = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
constexpr std::size_t kChunk = 65536 / sizeof(T);  // elements that share a frame
constexpr std::size_t kFew = 2048;  // below this many elements, sums are in float64 for any type

}  // namespace torchtap::reductions::detail
