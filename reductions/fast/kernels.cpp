/// The loops of `Kernels`. Highway compiles this file once per instruction set and picks one at run time.

#ifdef TORCHTAP_HAVE_HIGHWAY

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL  // for its bit-counting instruction
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/reductions/fast/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <torchtap/reductions/fast/kernels.hpp>
// Each of these defines one of the functions exported below.
#include <torchtap/reductions/fast/kernels_bins-inl.hpp>
#include <torchtap/reductions/fast/kernels_columns-inl.hpp>
#include <torchtap/reductions/fast/kernels_moments-inl.hpp>
#include <torchtap/reductions/fast/kernels_summary-inl.hpp>
#include <torchtap/reductions/fast/kernels_transpose-inl.hpp>

#if HWY_ONCE
namespace torchtap::reductions::detail {
namespace {
HWY_EXPORT(run);
HWY_EXPORT(columns);
HWY_EXPORT(fold_moments);
HWY_EXPORT(count_bins);
HWY_EXPORT(count_columns);
HWY_EXPORT(transpose);
}  // namespace

const Kernels* kernels() noexcept {
  static const Kernels all{
      [](c10::ScalarType type, const void* x, std::size_t n, Needs needs, Summary* out) {
        HWY_DYNAMIC_DISPATCH(run)(type, x, n, needs, out);
      },
      [](c10::ScalarType type, const void* x, std::size_t rows, std::size_t width, std::size_t stride,
         Summary* out) {
        HWY_DYNAMIC_DISPATCH(columns)
        (type, x, rows, width, stride, out);
      },
      [](c10::ScalarType type, const void* x, std::size_t n, double count, double* mean, double* m2,
         double* m3, double* m4) {
        HWY_DYNAMIC_DISPATCH(fold_moments)
        (type, x, n, count, mean, m2, m3, m4);
      },
      [](c10::ScalarType type, const void* x, std::size_t n, const BinEdges& edges, std::int64_t* counts) {
        HWY_DYNAMIC_DISPATCH(count_bins)(type, x, n, edges, counts);
      },
      [](c10::ScalarType type, const void* x, std::size_t n, const BinEdges& edges, std::int64_t* counts) {
        HWY_DYNAMIC_DISPATCH(count_columns)(type, x, n, edges, counts);
      },
      [](std::size_t item, const void* x, std::size_t rows, std::size_t width, std::size_t stride, void* to) {
        HWY_DYNAMIC_DISPATCH(transpose)(item, x, rows, width, stride, to);
      }};
  return &all;
}

std::int64_t instruction_sets() noexcept {
  return hwy::SupportedTargets() & HWY_TARGETS;
}

void use_instruction_sets(std::int64_t sets) noexcept {
  hwy::SetSupportedTargetsForTest(sets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace torchtap::reductions::detail
#endif

#else  // TORCHTAP_HAVE_HIGHWAY

#include <torchtap/reductions/fast/kernels.hpp>

namespace torchtap::reductions::detail {

const Kernels* kernels() noexcept {
  return nullptr;
}

std::int64_t instruction_sets() noexcept {
  return 0;
}

void use_instruction_sets(std::int64_t /*sets*/) noexcept {}

}  // namespace torchtap::reductions::detail
#endif
