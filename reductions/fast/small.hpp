#pragma once

/// Folds small samples in plain C++ loops, without the dispatcher and without allocations. If they name no
/// dtype, the state is float64.

#include <c10/core/ScalarType.h>

#include <cstdint>

#include <torchtap/reductions/fast/memory.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions::detail {

/// Elements: above, ATen's operations and the kernels use several threads.
constexpr std::int64_t kSmall = 32768;

/// Whether the loops can read this dtype: real and plain.
bool is_small_type(c10::ScalarType type) noexcept;

/// Summarises all elements, with the kernels if there are any for this dtype.
Summary summarize(const Memory& x, Needs needs);
/// The sum of all elements of integers or bool.
std::int64_t sum_integers(const Memory& x);

/// Adds each element to `sum`, of float32 (for float32 and half types), float64 (for any) or int64 (for
/// integers). Returns false, and does nothing, for another pair of dtypes.
bool add(const Memory& x, c10::ScalarType to, void* sum);

/// Writes each element to `numbers`, of float32 (not for float64) or float64. Returns false, and does
/// nothing, for another pair of dtypes.
bool copy(const Memory& x, c10::ScalarType to, void* numbers);

/// Replaces each number in `state` by the element if that is more extreme; NaN wins. The state has the dtype
/// of `x`, or int64 for the magnitudes of integers.
void take_extreme(const Memory& x, Extreme which, void* state);
/// Takes one number, which is a value of `type`, the dtype of the state.
void take_extreme(double number, c10::ScalarType type, Extreme which, void* state);
void take_extreme(std::int64_t number, c10::ScalarType type, Extreme which, void* state);
/// The most extreme of all elements of integers or bool.
std::int64_t extreme_integer(const Memory& x, Extreme which);

/// Adds |x|^p, or takes the maximum if p is infinite; NaN wins.
void add_power(const Memory& x, double p, double* sum);
/// The sum of |x|^p over all elements, for a finite p.
double sum_of_powers(const Memory& x, double p);
/// state = state * decay + x * (1 - decay).
void decay(const Memory& x, double decay, double* state);
/// Decays a single number by all elements as one row after another.
void decay_all(const Memory& x, double decay, double* state);

/// Adds the elements, as the `count`-th, to means and sums of squared deviations (Welford 1962).
void fold_variance(const Memory& x, double count, double* mean, double* m2);
/// As above, also to the sums of third and fourth powers (Pébay 2008).
void fold_moments(const Memory& x, double count, double* mean, double* m2, double* m3, double* m4);

}  // namespace torchtap::reductions::detail
