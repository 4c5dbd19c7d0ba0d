// Computes the rulers by which values find their bins, within the bounds of rounding errors.

#include <algorithm>
#include <cstring>

#include <torchtap/reductions/fast/bin_edges.hpp>

namespace torchtap::reductions::detail {
namespace {

double per_bin_of(const std::vector<double>& edges) {
  return static_cast<double>(edges.size() - 1) / (edges.back() - edges.front());
}

double largest_of(const std::vector<double>& edges) {
  return std::max(std::abs(edges.front()), std::abs(edges.back()));
}

/// The least number of type L that is not below x.
template <class L>
L rounded_up(double x) {
  const auto rounded = static_cast<L>(x);
  return static_cast<double>(rounded) < x ? std::nextafter(rounded, std::numeric_limits<L>::infinity())
                                          : rounded;
}

/// The least number of type L above x.
template <class L>
L next_above(double x) {
  const L rounded = rounded_up<L>(x);
  return static_cast<double>(rounded) == x ? std::nextafter(rounded, std::numeric_limits<L>::infinity())
                                           : rounded;
}

/// Number of bits from the first to the last set bit.
template <class L>
int significant_bits(L x) {
  int exponent = 0;
  constexpr int kDigits = std::numeric_limits<L>::digits;
  auto integer = static_cast<std::uint64_t>(std::ldexp(std::frexp(x, &exponent), kDigits));
  int bits = kDigits;
  for (; bits > 0 && (integer & 1) == 0; integer >>= 1) --bits;
  return bits;
}

int bit_length(std::uint64_t x) {
  int bits = 0;
  for (; x != 0; x >>= 1) ++bits;
  return bits;
}

template <class L>
std::make_signed_t<typename NearRuler<L, 8>::Word> bits_of(double x) {
  const auto lane = static_cast<L>(x);
  std::make_signed_t<typename NearRuler<L, 8>::Word> bits;
  std::memcpy(&bits, &lane, sizeof bits);
  return bits;
}

/// Whether numbers of type L express the range at all.
template <class L>
bool in_range_of(const std::vector<double>& edges) {
  using Limits = std::numeric_limits<L>;
  const double per_bin = per_bin_of(edges);
  return per_bin >= static_cast<double>(Limits::min()) && per_bin < static_cast<double>(Limits::max()) / 4 &&
         largest_of(edges) < static_cast<double>(Limits::max()) / 4;
}

template <class L>
std::vector<L> boundaries_of(const std::vector<double>& edges) {
  std::vector<L> boundaries(edges.size());
  std::transform(edges.begin(), edges.end(), boundaries.begin(), rounded_up<L>);
  boundaries.back() = next_above<L>(edges.back());
  return boundaries;
}

template <class L>
Rulers<L> rulers_of(const std::vector<double>& edges) {
  Rulers<L> rulers;
  if (!in_range_of<L>(edges)) return rulers;
  rulers.even = EvenRuler<L>(edges);
  if (rulers.even.fits) return rulers;
  rulers.bytes = decltype(rulers.bytes)(edges);
  rulers.words = decltype(rulers.words)(edges);
  rulers.boundaries = boundaries_of<L>(edges);
  return rulers;
}

}  // namespace

template <class L>
EvenRuler<L>::EvenRuler(const std::vector<double>& edges) {
  using Limits = std::numeric_limits<L>;
  const std::size_t bins = edges.size() - 1;
  const double per_bin = per_bin_of(edges), place = edges.front() * per_bin, integer = std::nearbyint(place);
  // Numbers from here up to twice as many are integers. Even with the rounding errors of the factors, the
  // product and the sum, the nearest edge must be one of the two that a value lies between.
  const double leading = std::ldexp(1.0, Limits::digits - 1);
  const double rounding =
      std::abs(place - integer) + 4.0 * static_cast<double>(Limits::epsilon()) *
                                      (largest_of(edges) * per_bin + static_cast<double>(bins) + 2);
  if (!(rounding < 0.375) || static_cast<double>(bins + 3) > leading / 4 || std::abs(integer) > leading / 2)
    return;
  scale = static_cast<L>(per_bin);
  first = static_cast<L>(leading + 1);
  offset = static_cast<L>(leading + 1 - integer);
  width = static_cast<L>((edges.back() - edges.front()) / static_cast<double>(bins));
  low = static_cast<L>(edges.front());
  high = rounded_up<L>(edges.back());
  last = next_above<L>(edges.back());
  // Then products i * width are exact, and it does not matter whether the sum is fused with them.
  if (!(width >= Limits::min()) || significant_bits(width) + bit_length(bins) > Limits::digits) return;
  for (std::size_t i = 0; i <= bins; ++i) {
    const L product = static_cast<L>(i) * width, edge = product + low;
    if (edge != (i == bins ? high : rounded_up<L>(edges[i]))) return;
  }
  fits = true;
}

template <class L, int kBits>
NearRuler<L, kBits>::NearRuler(const std::vector<double>& edges) {
  using Limits = std::numeric_limits<L>;
  const auto bins = static_cast<double>(edges.size() - 1);
  const double per_bin = per_bin_of(edges), leading = std::ldexp(1.0, kBits);
  // Total rounding of the product, its factors, the sum, its summand and the edges.
  const double rounding =
      4.0 * static_cast<double>(Limits::epsilon()) * (2 * largest_of(edges) * per_bin + leading + 2);
  if (bins + 3 > leading || !(rounding < 0.125)) return;
  scale = static_cast<L>(per_bin);
  offset = static_cast<L>(leading + 1 - edges.front() * per_bin);
  least = bits_of<L>(leading + 0.75);
  most = bits_of<L>(leading + bins + 1.25);
  tolerance = Word{1} << (kFraction + std::ilogb(rounding) + 1);
  distance = (Word{1} << kFraction) - 2 * tolerance;
  fits = true;
}

BinEdges::BinEdges(std::vector<double> edges)
    : edges_(std::move(edges)),
      bins_(static_cast<std::int64_t>(edges_.size()) - 1),
      low_(edges_.front()),
      high_(edges_.back()),
      per_bin_(per_bin_of(edges_)),
      floats_(rulers_of<float>(edges_)),
      doubles_(rulers_of<double>(edges_)) {
  // If bins are too narrow, or there are none, every guess is the first; then all edges are compared.
  if (!std::isfinite(per_bin_)) per_bin_ = 0;
}

}  // namespace torchtap::reductions::detail
