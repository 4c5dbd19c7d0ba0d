#pragma once

// The outcome of a forward: a digest of its outputs, counts of NaN and infinities, and sums.

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

/// The digest of flattened tensors: dtypes, sizes and bytes (views/monitor/FORMAT.md#digests); and counts
/// what is not finite in the same read. Undefined tensors are left out; a tensor that is not dense on the CPU
/// has only its dtype and sizes. Allocates nothing for contiguous tensors of the CPU.
Outcome outcome_of(const hooks::Tensors& outputs);
/// The outcome for tensors in a vector.
Outcome outcome_of(const std::vector<at::Tensor>& outputs);

}  // namespace torchtap::views::monitor::detail
