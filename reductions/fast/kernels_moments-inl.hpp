/// Adds each element to its own moments: `Kernels::fold_moments`.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_MOMENTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_MOMENTS_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_MOMENTS_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_MOMENTS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include <torchtap/reductions/fast/kernels_lanes-inl.hpp>
#include <torchtap/reductions/fast/kernels_scalar.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

template <class T>
void fold_moments_of(const T* x, std::size_t n, double count, double* mean, double* m2, double* m3,
                     double* m4) {
  const auto fold = [&](auto d, const T* p, double* mean_at, double* m2_at, double* m3_at,
                        double* m4_at) HWY_ATTR {
    const auto v = load(d, p);
    const auto old = hn::LoadU(d, mean_at), p2 = hn::LoadU(d, m2_at), p3 = hn::LoadU(d, m3_at),
               p4 = hn::LoadU(d, m4_at);
    const auto delta = hn::Sub(v, old);
    const auto part = hn::Mul(delta, hn::Set(d, 1.0 / count));
    const auto square = hn::Mul(part, part);
    const auto between = hn::Mul(hn::Mul(delta, part), hn::Set(d, count - 1));
    // Keep an infinite mean as torch computes it; the difference of two would be NaN.
    const auto total = hn::Add(old, v);
    hn::StoreU(hn::IfThenElse(hn::IsFinite(total), hn::Add(old, part), total), d, mean_at);
    const auto three = hn::Mul(part, p2);
    const auto r4 = hn::MulAdd(hn::Mul(between, square), hn::Set(d, count * count - 3 * count + 3), p4);
    const auto s4 = hn::MulAdd(hn::Mul(part, three), hn::Set(d, 6.0), r4);
    hn::StoreU(hn::NegMulAdd(hn::Mul(part, p3), hn::Set(d, 4.0), s4), d, m4_at);
    const auto r3 = hn::MulAdd(hn::Mul(between, part), hn::Set(d, count - 2), p3);
    hn::StoreU(hn::NegMulAdd(three, hn::Set(d, 3.0), r3), d, m3_at);
    hn::StoreU(hn::Add(p2, between), d, m2_at);
  };
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) fold(d, x + i, mean + i, m2 + i, m3 + i, m4 + i);
  if (i == n) return;
  T padded[HWY_MAX_BYTES / sizeof(double)] = {};
  double state[4][HWY_MAX_BYTES / sizeof(double)] = {};
  double* const lines[4] = {mean, m2, m3, m4};
  std::copy(x + i, x + n, padded);
  for (int k = 0; k < 4; ++k) std::copy(lines[k] + i, lines[k] + n, state[k]);
  fold(d, padded, state[0], state[1], state[2], state[3]);
  for (int k = 0; k < 4; ++k) std::copy(state[k], state[k] + (n - i), lines[k] + i);
}

void fold_moments(c10::ScalarType type, const void* x, std::size_t n, double count, double* mean, double* m2,
                  double* m3, double* m4) {
  with_type(type, [&](auto* typed) {
    fold_moments_of(static_cast<decltype(typed)>(const_cast<void*>(x)), n, count, mean, m2, m3, m4);
  });
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
