// Highway compiles this file once per instruction set and picks one at run time; the compiler makes vectors
// of the loops, whose branches are selections. Products are not fused with sums (-ffp-contract=off), so that
// all sets compute the same.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <torchtap/reductions/detail/kernels.hpp>
#include <torchtap/reductions/detail/small.hpp>

#ifdef TORCHTAP_HAVE_HIGHWAY
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/reductions/detail/small.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#else
#define HWY_NAMESPACE plain
#define HWY_ATTR
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_ONCE 1
#endif

#ifndef TORCHTAP_REDUCTIONS_DETAIL_SMALL_ONCE
#define TORCHTAP_REDUCTIONS_DETAIL_SMALL_ONCE
namespace torchtap::reductions::detail {

/// The loops below, compiled for one instruction set.
struct Loops {
  Summary (*summarize)(const Memory& x, Needs needs);
  std::int64_t (*sum_integers)(const Memory& x);
  bool (*add)(const Memory& x, c10::ScalarType to, void* sum);
  bool (*copy)(const Memory& x, c10::ScalarType to, void* numbers);
  void (*take_extreme)(const Memory& x, Extreme which, void* state);
  std::int64_t (*extreme_integer)(const Memory& x, Extreme which);
  void (*add_power)(const Memory& x, double p, double* sum);
  double (*sum_of_powers)(const Memory& x, double p);
  void (*decay)(const Memory& x, double decay, double* state);
  void (*decay_all)(const Memory& x, double decay, double* state);
  void (*fold_variance)(const Memory& x, double count, double* mean, double* m2);
  void (*fold_moments)(const Memory& x, double count, double* mean, double* m2, double* m3, double* m4);
};

}  // namespace torchtap::reductions::detail
#endif

#include <torchtap/reductions/detail/small_convert-inl.hpp>

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
    for (; i < n; ++i) lanes_[i % kLanes] += of(x[i]);
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

/// Takes what is not finite out of the sums: for samples that have such elements.
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

/// What one pass can tell of finite numbers, side by side in lanes that need not wait for one another.
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
    lanes.add(block + i, n - i);
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
      kernels()->run(at::kDouble, block, static_cast<std::size_t>(n), needs, &part);
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
    lanes.add(block + i, n - i);
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

bool add(const Memory& x, c10::ScalarType to, void* sum) {
  return with_type(x.type, [&](auto* typed) HWY_ATTR {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T* const from = elements<T>(x);
    const auto add_to = [&](auto* __restrict numbers) HWY_ATTR {
      using To = std::remove_reference_t<decltype(*numbers)>;
      for (std::int64_t i = 0; i < x.numel; ++i) numbers[i] += widened<To>(from[i]);
      return true;
    };
    if (to == c10::ScalarType::Double) return add_to(static_cast<double*>(sum));
    if constexpr (std::is_integral_v<T>) {
      // Unsigned, because sums wrap around, as torch's do.
      if (to == c10::ScalarType::Long) return add_to(static_cast<std::uint64_t*>(sum));
    } else if constexpr (!std::is_same_v<T, double>) {
      if (to == c10::ScalarType::Float) return add_to(static_cast<float*>(sum));
    }
    return false;
  });
}

bool copy(const Memory& x, c10::ScalarType to, void* numbers) {
  return with_type(x.type, [&](auto* typed) HWY_ATTR {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T* const from = elements<T>(x);
    const auto copy_to = [&](auto* __restrict out) HWY_ATTR {
      using To = std::remove_reference_t<decltype(*out)>;
      for (std::int64_t i = 0; i < x.numel; ++i) out[i] = widened<To>(from[i]);
      return true;
    };
    if (to == c10::ScalarType::Double) return copy_to(static_cast<double*>(numbers));
    if constexpr (std::is_same_v<T, float> || is_half_type<T>) {
      if (to == c10::ScalarType::Float) return copy_to(static_cast<float*>(numbers));
    }
    return false;
  });
}

void take_extreme(const Memory& x, Extreme which, void* state) {
  with_type(x.type, [&](auto* typed) HWY_ATTR {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T* const from = elements<T>(x);
    const auto take = [&](auto* __restrict numbers, const auto& of) HWY_ATTR {
      for (std::int64_t i = 0; i < x.numel; ++i) numbers[i] = of(numbers[i], from[i]);
    };
    if constexpr (is_half_type<T>) {
      auto* const numbers = static_cast<T*>(state);
      if (which == Extreme::abs_max) {
        take(numbers, [](T old, T next) HWY_ATTR {
          const T magnitude(static_cast<std::uint16_t>(bits_of(next) & 0x7FFFu), T::from_bits());
          // The bits of magnitudes ascend, and those of NaN are above infinity's.
          return bits_of(magnitude) > bits_of(old) ? magnitude : old;
        });
      } else {
        const bool least = which == Extreme::min;
        take(numbers, [least](T old, T next) HWY_ATTR {
          const float a = widened<float>(old), b = widened<float>(next);
          const bool better = least ? b < a : b > a;
          return better || b != b ? next : old;
        });
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      auto* const numbers = static_cast<T*>(state);
      if (which == Extreme::abs_max) {
        take(numbers, [](T old, T next) HWY_ATTR {
          const T magnitude = std::abs(next);
          return magnitude > old || magnitude != magnitude ? magnitude : old;
        });
      } else if (which == Extreme::min) {
        take(numbers, [](T old, T next) HWY_ATTR { return next < old || next != next ? next : old; });
      } else {
        take(numbers, [](T old, T next) HWY_ATTR { return next > old || next != next ? next : old; });
      }
    } else if (which == Extreme::abs_max) {
      take(static_cast<std::int64_t*>(state), [](std::int64_t old, T next) HWY_ATTR {
        // In int64 before the sign is changed: -128 has no opposite in int8. As torch's abs, the least int64
        // stays.
        const auto wide = static_cast<std::int64_t>(next);
        const auto magnitude =
            wide < 0 ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(wide)) : wide;
        return std::max(old, magnitude);
      });
    } else if (which == Extreme::min) {
      take(static_cast<T*>(state), [](T old, T next) HWY_ATTR { return std::min(old, next); });
    } else {
      take(static_cast<T*>(state), [](T old, T next) HWY_ATTR { return std::max(old, next); });
    }
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

void add_power(const Memory& x, double p, double* __restrict sum) {
  each_block(x, [&](const double* block, std::int64_t from, std::int64_t n) HWY_ATTR {
    double* __restrict to = sum + from;
    if (std::isinf(p)) {
      for (std::int64_t i = 0; i < n; ++i) {
        const double magnitude = std::abs(block[i]);
        to[i] = magnitude > to[i] || magnitude != magnitude ? magnitude : to[i];
      }
    } else if (p == 2) {
      for (std::int64_t i = 0; i < n; ++i) to[i] += block[i] * block[i];
    } else if (p == 1) {
      for (std::int64_t i = 0; i < n; ++i) to[i] += std::abs(block[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i] += std::pow(std::abs(block[i]), p);
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

void decay(const Memory& x, double decay, double* __restrict state) {
  const double share = 1 - decay;
  each_block(x, [&](const double* block, std::int64_t from, std::int64_t n) HWY_ATTR {
    double* __restrict to = state + from;
    for (std::int64_t i = 0; i < n; ++i) to[i] = to[i] * decay + block[i] * share;
  });
}

void decay_all(const Memory& x, double decay, double* state) {
  // Eight interleaved sums, each of which decays by eight steps at a time, need not wait for one another.
  // Elements before the first full row of lanes go one by one.
  constexpr std::int64_t kLanes = 8;
  const double share = 1 - decay;
  each_block(x, [&](const double* block, std::int64_t, std::int64_t n) HWY_ATTR {
    std::int64_t i = 0;
    for (; (n - i) % kLanes != 0; ++i) *state = *state * decay + block[i] * share;
    if (i == n) return;
    double powers[kLanes + 1] = {1.0}, lanes[kLanes] = {};
    for (std::int64_t j = 0; j < kLanes; ++j) powers[j + 1] = powers[j] * decay;
    double before = *state;
    for (; i < n; i += kLanes) {
      for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = lanes[j] * powers[kLanes] + block[i + j];
      before *= powers[kLanes];
    }
    double sum = 0;
    for (std::int64_t j = 0; j < kLanes; ++j) sum += lanes[j] * powers[kLanes - 1 - j];
    *state = before + sum * share;
  });
}

void fold_variance(const Memory& x, double count, double* __restrict mean, double* __restrict m2) {
  const double share = 1.0 / count, rest = count - 1;
  each_block(x, [&](const double* block, std::int64_t from, std::int64_t n) HWY_ATTR {
    double* __restrict const means = mean + from;
    double* __restrict const squares = m2 + from;
    for (std::int64_t i = 0; i < n; ++i) {
      const double delta = block[i] - means[i], part = delta * share, total = means[i] + block[i];
      squares[i] += delta * part * rest;
      // An infinite mean stays as torch computes it; the difference of two would be NaN.
      means[i] = std::abs(total) < kInfinity ? means[i] + part : total;
    }
  });
}

void fold_moments(const Memory& x, double count, double* __restrict mean, double* __restrict m2,
                  double* __restrict m3, double* __restrict m4) {
  if (kernels() != nullptr && c10::isFloatingType(x.type)) {
    kernels()->fold_moments(x.type, x.data, static_cast<std::size_t>(x.numel), count, mean, m2, m3, m4);
    return;
  }
  if (kernels() != nullptr) {
    each_block(x, [&](const double* block, std::int64_t from, std::int64_t n) HWY_ATTR {
      kernels()->fold_moments(at::kDouble, block, static_cast<std::size_t>(n), count, mean + from, m2 + from,
                              m3 + from, m4 + from);
    });
    return;
  }
  const double share = 1.0 / count, rest = count - 1;
  const double quartic = count * count - 3 * count + 3, cubic = count - 2;
  each_block(x, [&](const double* block, std::int64_t from, std::int64_t n) HWY_ATTR {
    double* __restrict const means = mean + from;
    double* __restrict const squares = m2 + from;
    double* __restrict const cubes = m3 + from;
    double* __restrict const fourths = m4 + from;
    for (std::int64_t i = 0; i < n; ++i) {
      const double delta = block[i] - means[i], part = delta * share, square = part * part;
      const double between = delta * part * rest, total = means[i] + block[i];
      const double three = part * squares[i];
      fourths[i] += between * square * quartic + 6 * part * three - 4 * part * cubes[i];
      cubes[i] += between * part * cubic - 3 * three;
      squares[i] += between;
      means[i] = std::abs(total) < kInfinity ? means[i] + part : total;
    }
  });
}

const Loops* loops() {
  static const Loops all{summarize, sum_integers,  add,   copy,      take_extreme,  extreme_integer,
                         add_power, sum_of_powers, decay, decay_all, fold_variance, fold_moments};
  return &all;
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::reductions::detail {
namespace {

#ifdef TORCHTAP_HAVE_HIGHWAY
HWY_EXPORT(loops);
#endif

const Loops& best() {
#ifdef TORCHTAP_HAVE_HIGHWAY
  static const Loops* const loops = HWY_DYNAMIC_DISPATCH(loops)();
#else
  static const Loops* const loops = HWY_NAMESPACE::loops();
#endif
  return *loops;
}

}  // namespace

bool is_small_type(c10::ScalarType type) noexcept {
  switch (type) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Long:
    case c10::ScalarType::Int:
    case c10::ScalarType::Short:
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return true;
    default:
      return false;
  }
}

Summary summarize(const Memory& x, Needs needs) {
  return best().summarize(x, needs);
}

std::int64_t sum_integers(const Memory& x) {
  return best().sum_integers(x);
}

bool add(const Memory& x, c10::ScalarType to, void* sum) {
  return best().add(x, to, sum);
}

bool copy(const Memory& x, c10::ScalarType to, void* numbers) {
  return best().copy(x, to, numbers);
}

void take_extreme(const Memory& x, Extreme which, void* state) {
  best().take_extreme(x, which, state);
}

std::int64_t extreme_integer(const Memory& x, Extreme which) {
  return best().extreme_integer(x, which);
}

void add_power(const Memory& x, double p, double* sum) {
  best().add_power(x, p, sum);
}

double sum_of_powers(const Memory& x, double p) {
  return best().sum_of_powers(x, p);
}

void decay(const Memory& x, double decay, double* state) {
  best().decay(x, decay, state);
}

void decay_all(const Memory& x, double decay, double* state) {
  best().decay_all(x, decay, state);
}

void fold_variance(const Memory& x, double count, double* mean, double* m2) {
  best().fold_variance(x, count, mean, m2);
}

void fold_moments(const Memory& x, double count, double* mean, double* m2, double* m3, double* m4) {
  best().fold_moments(x, count, mean, m2, m3, m4);
}

namespace {

template <class Number>
void take_extreme_number(Number number, c10::ScalarType type, Extreme which, void* state) {
  HWY_NAMESPACE::with_type(type, [&](auto* typed) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T one = static_cast<T>(number);
    // A magnitude is its own.
    take_extreme(Memory{type, reinterpret_cast<const char*>(&one), 1},
                 which == Extreme::min ? which : Extreme::max, state);
  });
}

}  // namespace

void take_extreme(double number, c10::ScalarType type, Extreme which, void* state) {
  take_extreme_number(number, type, which, state);
}

void take_extreme(std::int64_t number, c10::ScalarType type, Extreme which, void* state) {
  take_extreme_number(number, type, which, state);
}

}  // namespace torchtap::reductions::detail
#endif
