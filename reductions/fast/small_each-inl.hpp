/// Loops of small.cpp that fold each element into its own number.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_SMALL_EACH_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_SMALL_EACH_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_SMALL_EACH_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_SMALL_EACH_INL_HPP
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
          // The bits of magnitudes ascend, and NaN has greater bits than infinity.
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

void decay(const Memory& x, double decay, double* __restrict state) {
  const double share = 1 - decay;
  each_block(x, [&](const double* block, std::int64_t from, std::int64_t n) HWY_ATTR {
    double* __restrict to = state + from;
    for (std::int64_t i = 0; i < n; ++i) to[i] = to[i] * decay + block[i] * share;
  });
}

void fold_variance(const Memory& x, double count, double* __restrict mean, double* __restrict m2) {
  const double share = 1.0 / count, rest = count - 1;
  each_block(x, [&](const double* block, std::int64_t from, std::int64_t n) HWY_ATTR {
    double* __restrict const means = mean + from;
    double* __restrict const squares = m2 + from;
    for (std::int64_t i = 0; i < n; ++i) {
      const double old = means[i], value = block[i];
      const double delta = value - old, part = delta * share, moved = old + part, total = old + value;
      squares[i] += delta * part * rest;
      // An infinite mean stays as torch computes it; the difference of two would be NaN.
      means[i] = std::abs(total) < kInfinity ? moved : total;
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
      kernels()->fold_moments(c10::ScalarType::Double, block, static_cast<std::size_t>(n), count, mean + from,
                              m2 + from, m3 + from, m4 + from);
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

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
