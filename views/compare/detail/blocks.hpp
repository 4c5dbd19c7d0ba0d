#pragma once

/// Sums over blocks of elements, from which fingerprints are made.

#include <cstdint>
#include <limits>

#include <torchtap/base/split_mix.hpp>

namespace torchtap::views::compare::detail {

constexpr int kBlock = 1024;  // words of the digest, elements of the sketch
constexpr int kLanes = 64;    // sums of the sketch
constexpr int kRow = 16;      // words that are weighted alike; no vector has more
constexpr int kWide = 8;      // no vector has more float64

using base::kGolden;
/// The i-th random number of a stream.
constexpr std::uint64_t draw(std::uint64_t stream, std::uint64_t i) {
  return base::split_mix(stream * kGolden + i + 1);
}

/// The place of block c in the sketch: its row of signs, its sign and its first sum.
struct Turn {
  explicit constexpr Turn(std::uint64_t c) : drawn(draw(5, c)) {}

  constexpr int signs() const { return kLanes * static_cast<int>(drawn >> 8 & 15); }
  constexpr bool negative() const { return drawn >> 63 != 0; }
  constexpr int first() const { return static_cast<int>(drawn & (kLanes - 1)); }

  std::uint64_t drawn;
};

/// The kinds of elements.
enum class Element : std::uint8_t { f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, f8 };

/// Sums over the bits of elements.
struct BitSums {
  std::uint64_t digest[2] = {};
  std::uint32_t elements = 0;
  alignas(64) std::uint32_t exclusive[kRow] = {};  // of words, which may hold several elements
  alignas(64) std::uint32_t either[kRow] = {};
};

/// Sums over the elements of a piece of a tensor.
struct Sums {
  explicit Sums(double* to) : sketch(to) {}

  BitSums bits;
  std::uint64_t nans = 0, infinities = 0, zeros = 0;
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  alignas(64) double sum[kWide] = {}, sum_sq[kWide] = {};
  double* sketch;
};

/// Adds `n` elements side by side, beginning with element `first`, a multiple of 4096. `n` is a multiple of
/// 4096 except at the end of the tensor. `table` has the numbers of all 256 of f8.
void add(Element type, const void* x, std::int64_t n, std::int64_t first, const float* table, Sums& sums);

/// Takes the elements at `n` places as float32; all NaN become one.
void take(Element type, const void* x, const std::int64_t* places, int n, const float* table, float* to);

}  // namespace torchtap::views::compare::detail
