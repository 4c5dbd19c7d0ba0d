#pragma once

/// Pairs the items of two lists in the order of both.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <torchtap/views/compare/difference.hpp>

namespace torchtap::views::compare::detail {

/// The score of items that must not be pairs.
inline constexpr double kNever = -9;

/// Scores of how likely two tensors are the same one.
inline double closeness(const Fingerprint& a, const Fingerprint& b) {
  const Difference measured = difference(a, b);
  return measured.same_bits ? 4 : measured.error < 1e-4 ? 3 : measured.error < 0.3 ? 1 : 0.3;
}

/// The pairs (i, j) with the greatest sum of `score(i, j)`, of `n` and `m` items (Needleman and Wunsch 1970).
template <class Score>
std::vector<std::pair<std::size_t, std::size_t>> aligned(std::size_t n, std::size_t m, const Score& score) {
  constexpr double kGap = -0.1;
  enum Move : std::uint8_t { both, only_a, only_b };
  std::vector<Move> moves((n + 1) * (m + 1), only_b);
  std::vector<double> row(m + 1), above(m + 1);
  for (std::size_t j = 0; j <= m; ++j) above[j] = kGap * static_cast<double>(j);
  for (std::size_t i = 1; i <= n; ++i) {
    row[0] = kGap * static_cast<double>(i);
    Move* const move = &moves[i * (m + 1)];
    move[0] = only_a;
    for (std::size_t j = 1; j <= m; ++j) {
      row[j] = above[j - 1] + score(i - 1, j - 1);
      move[j] = both;
      if (above[j] + kGap > row[j]) row[j] = above[j] + kGap, move[j] = only_a;
      if (row[j - 1] + kGap > row[j]) row[j] = row[j - 1] + kGap, move[j] = only_b;
    }
    std::swap(row, above);
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = n, j = m; i > 0 || j > 0;) {
    const Move move = moves[i * (m + 1) + j];
    i -= move != only_b, j -= move != only_a;
    if (move == both) pairs.emplace_back(i, j);
  }
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace torchtap::views::compare::detail
