/// Summarises neighbouring columns: `Kernels::columns`.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_COLUMNS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_COLUMNS_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_COLUMNS_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_COLUMNS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <torchtap/reductions/fast/kernels.hpp>
#include <torchtap/reductions/fast/kernels_lanes-inl.hpp>
#include <torchtap/reductions/fast/kernels_scalar.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

constexpr std::size_t kSpace = Kernels::kColumns + HWY_MAX_BYTES / sizeof(double);

/// The state of each column so far, in its frame.
struct Lines {
  double scale[kSpace], shift[kSpace], min[kSpace], max[kSpace], zeros[kSpace], s1[kSpace], s2[kSpace],
      s3[kSpace], s4[kSpace];
};

/// Summarises neighbouring columns. Sums stay in registers for about as many rows as the processor prefetches
/// at a time.
template <class T>
void summarize_columns(const T* x, std::size_t rows, std::size_t width, std::size_t stride, Summary* out) {
  constexpr std::size_t kRows = 16;
  HWY_ALIGN Lines lines = {};
  std::array<Frame, Kernels::kColumns> frames;
  for (std::size_t c = 0; c < width; ++c) {
    frames[c] = Frame::of(x + c, rows, stride);
    lines.scale[c] = frames[c].scale;
    lines.shift[c] = frames[c].shift * frames[c].scale;
    lines.min[c] = std::numeric_limits<double>::infinity();
    lines.max[c] = -lines.min[c];
  }

  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0);
  for (std::size_t from = 0; from < rows; from += kRows) {
    const std::size_t to = std::min(rows, from + kRows);
    for (std::size_t c = 0; c < width; c += lanes) {
      const auto scale = hn::LoadU(d, lines.scale + c), shift = hn::LoadU(d, lines.shift + c);
      auto s1 = hn::LoadU(d, lines.s1 + c), s2 = hn::LoadU(d, lines.s2 + c), s3 = hn::LoadU(d, lines.s3 + c),
           s4 = hn::LoadU(d, lines.s4 + c), min = hn::LoadU(d, lines.min + c),
           max = hn::LoadU(d, lines.max + c), zeros = hn::LoadU(d, lines.zeros + c);
      T padded[HWY_MAX_BYTES / sizeof(double)] = {};
      for (std::size_t r = from; r < to; ++r) {
        const T* p = x + r * stride + c;
        hwy::Prefetch(p + 2 * kRows * stride);
        if (c + lanes > width) {
          std::copy(p, p + (width - c), padded);  // the remaining lanes are ignored
          p = padded;
        }
        const auto v = load(d, p);
        add_powers(v, scale, shift, s1, s2, s3, s4);
        min = hn::Min(min, v);
        max = hn::Max(max, v);
        zeros = hn::Add(zeros, hn::IfThenElseZero(hn::Eq(v, zero), one));
      }
      hn::StoreU(s1, d, lines.s1 + c);
      hn::StoreU(s2, d, lines.s2 + c);
      hn::StoreU(s3, d, lines.s3 + c);
      hn::StoreU(s4, d, lines.s4 + c);
      hn::StoreU(min, d, lines.min + c);
      hn::StoreU(max, d, lines.max + c);
      hn::StoreU(zeros, d, lines.zeros + c);
    }
  }
  for (std::size_t c = 0; c < width; ++c) {
    out[c] = Summary();
    out[c].min = lines.min[c];
    out[c].max = lines.max[c];
    out[c].zeros = static_cast<std::int64_t>(lines.zeros[c]);
    const Powers powers{lines.s1[c], lines.s2[c], lines.s3[c], lines.s4[c]};
    if (!powers.central<double>(rows, frames[c], &out[c])) out[c] = summarize_carefully(x + c, rows, stride);
  }
}

void columns(c10::ScalarType type, const void* x, std::size_t rows, std::size_t width, std::size_t stride,
             Summary* out) {
  with_type(type, [&](auto* typed) {
    summarize_columns(static_cast<decltype(typed)>(const_cast<void*>(x)), rows, width, stride, out);
  });
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
