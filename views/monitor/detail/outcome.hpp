#pragma once

// How a forward ended: a digest of its outputs, and what a look at them tells.

#include <cstddef>
#include <cstdint>

#include <torchtap/hooks/values.hpp>

namespace torchtap::views::monitor::detail {

struct Outcome {
  std::uint64_t digest = 0;  // of the outputs
  std::int64_t nan = 0, inf = 0;
  std::int64_t nanoseconds = 0;
  double sum = 0, magnitude = 0;  // of the finite elements, and of their absolute values
};

/// XXH64 of what is put in, block by block of 32 bytes (docs/format.md#digests).
class Digest {
 public:
  /// Adds bytes, behind them zeros up to a multiple of 32.
  void add(const void* data, std::size_t bytes) noexcept;
  std::uint64_t value() const noexcept;

 private:
  void block(const unsigned char* bytes) noexcept;

  std::uint64_t lanes_[4] = {0x60EA27EEADC0B5D6ULL, 0xC2B2AE3D27D4EB4FULL, 0, 0x61C8864E7A143579ULL};
  std::uint64_t bytes_ = 0;
};

/// The digest of flattened tensors: dtypes, sizes and bytes; and counts what is not finite in the same read.
/// Undefined tensors are left out; a tensor that is not dense on the CPU has only its dtype and sizes.
/// Allocates nothing for contiguous tensors of the CPU.
Outcome outcome_of(const hooks::Tensors& outputs);
/// The same.
Outcome outcome_of(const std::vector<at::Tensor>& outputs);

}  // namespace torchtap::views::monitor::detail
