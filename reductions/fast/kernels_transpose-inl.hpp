/// Turns matrices around: `Kernels::transpose`.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_TRANSPOSE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_TRANSPOSE_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_TRANSPOSE_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_TRANSPOSE_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void transpose_any(const T* x, std::size_t rows, std::size_t width, std::size_t stride, T* to,
                   std::size_t apart) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < width; ++c) to[c * apart + r] = x[r * stride + c];
  }
}

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
template <class T>
constexpr std::size_t kSide = 1;

template <class T>
void transpose_square(const T* x, std::size_t /*stride*/, T* to, std::size_t /*apart*/) {
  *to = *x;
}
#else
template <class T>
constexpr std::size_t kSide = 16 / sizeof(T);  // rows and columns of a square whose rows are vectors

/// Each step interleaves the upper half of the rows with the lower one, which moves each bit of an element's
/// number by one; after as many steps as a row's number has bits, row and column have changed places.
template <class T>
HWY_INLINE void transpose_square(const T* x, std::size_t stride, T* to, std::size_t apart) {
  constexpr std::size_t kRows = kSide<T>;
  const hn::Full128<T> d;
  hn::Vec<decltype(d)> rows[kRows], next[kRows];
  for (std::size_t i = 0; i < kRows; ++i) rows[i] = hn::LoadU(d, x + i * stride);
  for (std::size_t step = 1; step < kRows; step *= 2) {
    for (std::size_t i = 0; i < kRows / 2; ++i) {
      next[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kRows / 2]);
      next[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kRows / 2]);
    }
    for (std::size_t i = 0; i < kRows; ++i) rows[i] = next[i];
  }
  for (std::size_t i = 0; i < kRows; ++i) hn::StoreU(rows[i], d, to + i * apart);
}
#endif

template <class T>
void transpose_of(const T* x, std::size_t rows, std::size_t width, std::size_t stride, T* to) {
  constexpr std::size_t kRows = kSide<T>, kLine = std::max(kRows, 64 / sizeof(T));
  const std::size_t squares_down = rows / kRows * kRows, squares_across = width / kRows * kRows;
  // As many columns at a time as there are in a line of the cache: more lines of the result would push out
  // each other.
  for (std::size_t line = 0; line < squares_across; line += kLine) {
    for (std::size_t r = 0; r < squares_down; r += kRows) {
      for (std::size_t c = line; c < std::min(line + kLine, squares_across); c += kRows)
        transpose_square(x + r * stride + c, stride, to + c * rows + r, rows);
    }
  }
  transpose_any(x + squares_across, squares_down, width - squares_across, stride, to + squares_across * rows,
                rows);
  transpose_any(x + squares_down * stride, rows - squares_down, width, stride, to + squares_down, rows);
}

void transpose(std::size_t item, const void* x, std::size_t rows, std::size_t width, std::size_t stride,
               void* to) {
  const auto turn = [&](auto zero) {
    using T = decltype(zero);
    transpose_of(static_cast<const T*>(x), rows, width, stride, static_cast<T*>(to));
  };
  if (item == 8) return turn(std::uint64_t{0});
  if (item == 4) return turn(std::uint32_t{0});
  if (item == 2) return turn(std::uint16_t{0});
  transpose_any(static_cast<const char*>(x), rows, width, stride, static_cast<char*>(to), rows);
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
