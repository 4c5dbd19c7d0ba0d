#pragma once

// Finds back-to-back repetitions in a sequence.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchtap::views::trace::detail {

/// A stretch [begin, end) of a sequence whose shortest period is `period`, at least two periods long, and
/// that cannot be made longer in either direction.
struct Repetition {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t period = 0;
};

/// All runs, ordered by begin, then by end; fewer than there are elements. Takes O(n log n): each run has a
/// Lyndon word of its period as its root (Bannai et al., The "runs" theorem, 2017). Equality is compared by
/// hashes, so who builds on a run should look at its elements.
std::vector<Repetition> runs(const std::vector<std::int64_t>& sequence);

}  // namespace torchtap::views::trace::detail
