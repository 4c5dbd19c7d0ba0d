#pragma once

/// Holds the edges of a histogram's bins, and the numbers by which values find their bin fast.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace torchtap::reductions::detail {

/// Finds bins whose edges are low + i * width to the last bit in type L, as in a growing range: a value is
/// compared with the edge nearest to it, which is computed. So it does not matter where the values are.
template <class L>
struct EvenRuler {
  bool fits = false;       ///< whether the edges are such
  L scale = 0, first = 0;  ///< x * scale + offset is rounded to an integer: first + i for the edge i
  L offset = 0;
  L width = 0, low = 0;
  L high = 0;  ///< the least number that is not below the range's upper edge
  L last = 0;  ///< the least number above the range

  EvenRuler() = default;
  explicit EvenRuler(const std::vector<double>& edges);
};

/// Finds bins of equal width with any edges: reads slots off the bits of x * scale + offset, `kBits` bits
/// below the leading one, followed by a fraction. Values closer to an edge than the rounding error are
/// compared with it.
template <class L, int kBits>
struct NearRuler {
  using Word = std::conditional_t<sizeof(L) == 4, std::uint32_t, std::uint64_t>;
  static constexpr int kFraction = std::numeric_limits<L>::digits - 1 - kBits;
  static constexpr Word kMask = (Word{1} << kBits) - 1;

  bool fits = false;  ///< whether the rounding error is far less than a bin
  L scale = 0, offset = 0;
  std::make_signed_t<Word> least = 0, most = 0;  ///< values beyond belong to the outer slots
  Word tolerance = 0, distance = 0;  ///< near an edge, fraction + tolerance has no bit of distance

  NearRuler() = default;
  explicit NearRuler(const std::vector<double>& edges);
};

/// The rulers for values that are compared in type L.
template <class L>
struct Rulers {
  EvenRuler<L> even;
  NearRuler<L, 8> bytes;  ///< whose slots fit in a byte
  NearRuler<L, sizeof(L) == 4 ? 12 : 24> words;
  /// The boundary between slot i and slot i + 1: the least number in the latter. Empty if `even` fits.
  std::vector<L> boundaries;
};

/// Bin i counts edges[i] <= x < edges[i + 1]; the last bin includes its upper edge. Ascending, at least two.
///
/// A histogram has a counter for each bin, then one for values below, one for those above and one for NaN.
class BinEdges {
 public:
  explicit BinEdges(std::vector<double> edges);

  std::int64_t bins() const noexcept { return bins_; }
  std::int64_t counters() const noexcept { return bins_ + 3; }
  const std::vector<double>& edges() const noexcept { return edges_; }

  /// The counter of any single value, by comparison with the edges.
  std::int64_t counter_of(double x) const noexcept {
    if (!(x >= low_ && x <= high_)) return x < low_ ? bins_ : x > high_ ? bins_ + 1 : bins_ + 2;
    const double* const edges = edges_.data();
    const auto guess = static_cast<std::int64_t>((x - low_) * per_bin_);
    std::int64_t bin = guess < bins_ ? guess : bins_ - 1;
    while (bin > 0 && x < edges[bin]) --bin;
    while (bin + 1 < bins_ && x >= edges[bin + 1]) ++bin;
    return bin;
  }

  /// The counter of a slot. In kernels, slot 0 is below, slots 1 ... bins inside, bins + 1 above, bins + 2
  /// NaN.
  std::int64_t counter_of_slot(std::int64_t slot) const noexcept { return counter_of_slot(slot, bins_); }
  static std::int64_t counter_of_slot(std::int64_t slot, std::int64_t bins) noexcept {
    return slot == 0 ? bins : slot <= bins ? slot - 1 : slot;
  }

  template <class L>
  const Rulers<L>& rulers() const noexcept {
    if constexpr (std::is_same_v<L, float>) {
      return floats_;
    } else {
      return doubles_;
    }
  }

 private:
  std::vector<double> edges_;
  std::int64_t bins_;
  double low_, high_, per_bin_;
  Rulers<float> floats_;
  Rulers<double> doubles_;
};

using Edges = std::shared_ptr<const BinEdges>;

}  // namespace torchtap::reductions::detail
