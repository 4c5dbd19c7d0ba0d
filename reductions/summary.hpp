#pragma once

/// Defines the statistics of a sample that one pass computes.

#include <cstdint>
#include <limits>

#include <torchtap/base/api.hpp>

namespace torchtap::reductions {

/// Statistics of some elements from one pass. Central moments, extrema and sum cover the finite elements
/// only.
struct TORCHTAP_API Summary {
  std::int64_t taken = 0;                                                  ///< finite elements
  double sum = 0.0;                                                        ///< of the finite elements
  double mean = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0;                         ///< m_k: the sum of (x - mean)^k
  double min = std::numeric_limits<double>::infinity();                    ///< of the finite elements
  double max = -std::numeric_limits<double>::infinity();                   ///< of the finite elements
  std::int64_t nan = 0, positive_infinities = 0, negative_infinities = 0;  ///< how many there are
  std::int64_t zeros = 0;

  /// How many elements are infinite.
  std::int64_t infinities() const noexcept { return positive_infinities + negative_infinities; }
  /// How many elements are NaN or infinite.
  std::int64_t non_finite() const noexcept { return nan + infinities(); }

  /// The sum over all elements as torch computes it, given the sum over the finite ones.
  double with_non_finite(double finite) const noexcept {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (nan != 0 || (positive_infinities != 0 && negative_infinities != 0))
      return std::numeric_limits<double>::quiet_NaN();
    return positive_infinities != 0 ? kInfinity : negative_infinities != 0 ? -kInfinity : finite;
  }

  /// Merges the summary of other elements (Chan, Golub & LeVeque 1983; Pébay 2008).
  void merge(const Summary& other) noexcept {
    if (taken == 0) {
      mean = other.mean;
      m2 = other.m2;
      m3 = other.m3;
      m4 = other.m4;
    } else if (other.taken != 0) {
      const auto na = static_cast<double>(taken);
      const auto nb = static_cast<double>(other.taken);
      const double n = na + nb, fa = na / n, fb = nb / n;
      const double delta = other.mean - mean, square = delta * delta;
      m4 += other.m4 + square * square * na * fb * (fa * fa - fa * fb + fb * fb) +
            6 * square * (fa * fa * other.m2 + fb * fb * m2) + 4 * delta * (fa * other.m3 - fb * m3);
      m3 += other.m3 + square * delta * na * fb * (fa - fb) + 3 * delta * (fa * other.m2 - fb * m2);
      m2 += other.m2 + square * na * fb;
      mean += delta * fb;
    }
    taken += other.taken;
    sum += other.sum;
    min = other.min < min ? other.min : min;
    max = other.max > max ? other.max : max;
    nan += other.nan;
    positive_infinities += other.positive_infinities;
    negative_infinities += other.negative_infinities;
    zeros += other.zeros;
  }
};

/// Statistics to compute beyond `taken`, `sum`, `mean`, `min`, `max` and the non-finite counts.
struct TORCHTAP_API Needs {
  bool moments = false;  ///< m2, m3, m4
  bool zeros = false;    ///< zeros

  /// The needs of both.
  Needs operator|(const Needs& other) const noexcept {
    return {moments || other.moments, zeros || other.zeros};
  }
};

}  // namespace torchtap::reductions
