#pragma once

/// Declares the loops that count numbers by their upper bits.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include <torchtap/reductions/extend/bit_bins.hpp>

namespace torchtap::reductions::detail {

using extend::BitBins;
using extend::SlotCounts;

/// Single-threaded loops over contiguous numbers: floating-point types of up to 64 bits, integers of up to 64
/// bits and bool.
struct BitKernels {
  /// Adds 1 to counts[slot] for each of `n` elements.
  void (*count)(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::int64_t* counts);
  /// The slot of each of `n` elements.
  void (*find)(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::uint32_t* slots);
};

/// There are always some: without Highway, plain loops.
const BitKernels& bit_kernels() noexcept;

/// Whether the loops read this type.
bool has_bits(c10::ScalarType type) noexcept;

}  // namespace torchtap::reductions::detail
