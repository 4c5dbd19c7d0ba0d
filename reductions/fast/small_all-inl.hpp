/// Loops of small.cpp that make one number, or one summary, of all elements.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_SMALL_ALL_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_SMALL_ALL_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_SMALL_ALL_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_SMALL_ALL_INL_HPP
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <torchtap/reductions/fast/kernels.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/fast/small_convert-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

/// Sums side by side, so that one addition need not wait for the other.
class Lanes {
 public:
  template <class F>
  HWY_ATTR void add(const double* x, std::int64_t n, const F& of) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::int64_t j = 0; j < kLanes; ++j) lanes_[j] += of(x[i + j]);
    }
    for (; i < n; ++i) lanes_[0] += of(x[i]);
  }
  double sum() const noexcept {
    double sum = 0;
    for (const double lane : lanes_) sum += lane;
    return sum;
  }

 private:
  static constexpr std::int64_t kLanes = 8;
  double lanes_[kLanes] = {};
};

/// Leaves NaN and infinities out of the sums: for samples that have such elements.
Summary summarize_finite(const Memory& x) {
  Summary all;
  each_block(x, [&](const double* block, std::int64_t, std::int64_t n) HWY_ATTR {
    for (std::int64_t i = 0; i < n; ++i) {
      const double value = block[i];
      if (std::isfinite(value)) {
        ++all.taken;
        all.sum += value;
        all.min = std::min(all.min, value);
        all.max = std::max(all.max, value);
        all.zeros += value == 0.0 ? 1 : 0;
      } else {
        ++(std::isnan(value) ? all.nan : value > 0 ? all.positive_infinities : all.negative_infinities);
      }
    }
  });
  return all;
}

/// Results of one pass over finite numbers, in lanes side by side that need not wait for one another.
struct Scanned {
  static constexpr std::int64_t kLanes = 8;
  double sum[kLanes] = {}, zeros[kLanes] = {}, min[kLanes], max[kLanes];

  Scanned() {
    std::fill(min, min + kLanes, kInfinity);
    std::fill(max, max + kLanes, -kInfinity);
  }
  HWY_ATTR void add(const double* x, std::int64_t lanes) {
    for (std::int64_t j = 0; j < lanes; ++j) {
      sum[j] += x[j];
      zeros[j] += x[j] == 0.0 ? 1.0 : 0.0;
      min[j] = x[j] < min[j] ? x[j] : min[j];
      max[j] = x[j] > max[j] ? x[j] : max[j];
    }
  }
};

Summary summarize_all(const Memory& x) {
  Scanned lanes;
  each_block(x, [&](const double* block, std::int64_t, std::int64_t n) HWY_ATTR {
    std::int64_t i = 0;
    for (; i + Scanned::kLanes <= n; i += Scanned::kLanes) lanes.add(block + i, Scanned::kLanes);
    for (; i < n; ++i) lanes.add(block + i, 1);
  });
  Summary all;
  double zeros = 0;
  for (std::int64_t j = 0; j < Scanned::kLanes; ++j) {
    all.sum += lanes.sum[j];
    zeros += lanes.zeros[j];
    all.min = std::min(all.min, lanes.min[j]);
    all.max = std::max(all.max, lanes.max[j]);
  }
  if (!std::isfinite(all.sum)) return summarize_finite(x);
  all.taken = x.numel;
  all.zeros = static_cast<std::int64_t>(zeros);
  return all;
}

/// Sums of powers of deviations from the mean of the finite elements, in lanes.
struct Deviations {
  static constexpr std::int64_t kLanes = 8;
  double mean;
  double m2[kLanes] = {}, m3[kLanes] = {}, m4[kLanes] = {};

  HWY_ATTR void add(const double* x, std::int64_t lanes) {
    for (std::int64_t j = 0; j < lanes; ++j) {
      const double distance = x[j] - mean;
      const double deviation = std::abs(distance) < kInfinity ? distance : 0.0,
                   square = deviation * deviation;
      m2[j] += square;
      m3[j] += square * deviation;
      m4[j] += square * square;
    }
  }
};

Summary summarize(const Memory& x, Needs needs) {
  if (kernels() != nullptr && c10::isFloatingType(x.type)) {
    Summary summary;
    kernels()->run(x.type, x.data, static_cast<std::size_t>(x.numel), needs, &summary);
    return summary;
  }
  if (kernels() != nullptr) {
    Summary all;
    each_block(x, [&](const double* block, std::int64_t, std::int64_t n) HWY_ATTR {
      Summary part;
      kernels()->run(c10::ScalarType::Double, block, static_cast<std::size_t>(n), needs, &part);
      all.merge(part);
    });
    return all;
  }
  Summary all = summarize_all(x);
  if (all.taken == 0) return all;
  all.mean = all.min == all.max ? all.min : all.sum / static_cast<double>(all.taken);
  if (!needs.moments) return all;
  Deviations lanes{all.mean};
  each_block(x, [&](const double* block, std::int64_t, std::int64_t n) HWY_ATTR {
    std::int64_t i = 0;
    for (; i + Deviations::kLanes <= n; i += Deviations::kLanes) lanes.add(block + i, Deviations::kLanes);
    for (; i < n; ++i) lanes.add(block + i, 1);
  });
  for (std::int64_t j = 0; j < Deviations::kLanes; ++j) {
    all.m2 += lanes.m2[j];
    all.m3 += lanes.m3[j];
    all.m4 += lanes.m4[j];
  }
  return all;
}

std::int64_t sum_integers(const Memory& x) {
  return with_type(x.type, [&](auto* typed) HWY_ATTR -> std::int64_t {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    std::uint64_t sum = 0;  // wraps around, as torch's sum does
    if constexpr (std::is_integral_v<T>) {
      for (std::int64_t i = 0; i < x.numel; ++i)
        sum += static_cast<std::uint64_t>(static_cast<std::int64_t>(elements<T>(x)[i]));
    }
    return static_cast<std::int64_t>(sum);
  });
}

std::int64_t extreme_integer(const Memory& x, Extreme which) {
  return with_type(x.type, [&](auto* typed) HWY_ATTR -> std::int64_t {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    if constexpr (std::is_integral_v<T>) {
      const T* const from = elements<T>(x);
      if (which == Extreme::abs_max) {
        std::int64_t magnitude = std::numeric_limits<std::int64_t>::min();
        for (std::int64_t i = 0; i < x.numel; ++i) {
          const auto wide = static_cast<std::int64_t>(from[i]);
          magnitude = std::max(
              magnitude, wide < 0 ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(wide)) : wide);
        }
        return magnitude;
      }
      T best = from[0];
      for (std::int64_t i = 1; i < x.numel; ++i)
        best = which == Extreme::min ? std::min(best, from[i]) : std::max(best, from[i]);
      return static_cast<std::int64_t>(best);
    } else {
      return 0;  // callers have integers
    }
  });
}

double sum_of_powers(const Memory& x, double p) {
  Lanes sum;
  each_block(x, [&](const double* block, std::int64_t, std::int64_t n) HWY_ATTR {
    if (p == 1) {
      sum.add(block, n, [](double value) HWY_ATTR { return std::abs(value); });
    } else {
      sum.add(block, n, [p](double value) HWY_ATTR { return std::pow(std::abs(value), p); });
    }
  });
  return sum.sum();
}

void decay_all(const Memory& x, double decay, double* state) {
  // Interleaved sums, each of which decays by as many steps at a time as there are sums, need not wait for
  // one another. The first of their elements are zeros where the number of elements is no multiple of that.
  constexpr std::int64_t kRow = 8, kRows = 4, kLanes = kRow * kRows;
  double powers[kRow + 1] = {1.0};
  for (std::int64_t j = 0; j < kRow; ++j) powers[j + 1] = powers[j] * decay;
  const double by_row = powers[kRow], by_all = by_row * by_row * (by_row * by_row);
  const std::int64_t head = x.numel % kLanes;
  double before = *state * powers[head % kRow];
  for (std::int64_t i = 0; i < head / kRow; ++i) before *= by_row;
  const double sum = with_type(x.type, [&](auto* typed) HWY_ATTR {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T* const from = elements<T>(x);
    double lanes[kLanes] = {};
    for (std::int64_t j = 0; j < head; ++j) lanes[kLanes - head + j] = widened<double>(from[j]);
    for (std::int64_t i = head; i < x.numel; i += kLanes) {
      for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = lanes[j] * by_all + widened<double>(from[i + j]);
      before *= by_all;
    }
    double sum = 0;
    for (std::int64_t j = 0; j < kRow; ++j) {
      double column = lanes[j];
      for (std::int64_t i = 1; i < kRows; ++i) column = column * by_row + lanes[i * kRow + j];
      sum += column * powers[kRow - 1 - j];
    }
    return sum;
  });
  *state = before + sum * (1 - decay);
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
