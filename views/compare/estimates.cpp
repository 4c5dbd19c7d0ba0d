// What fingerprints say of the tensors that they are of.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <torchtap/views/compare/detail/blocks.hpp>
#include <torchtap/views/compare/estimates.hpp>

namespace torchtap::views::compare {
namespace {

using Sketch = std::array<double, Fingerprint::kSketch>;

bool comparable(const Fingerprint& a, const Fingerprint& b) {
  return a.numel() == b.numel() && a.nans == b.nans && a.infinities == b.infinities;
}

/// The sketch of n ones.
Sketch sketch_of_ones(std::int64_t n) {
  const auto* const negative = detail::signs<std::uint32_t>();
  const auto add_block = [&](std::uint64_t row, int size, Sketch& to) {
    for (int i = 0; i < size; ++i)
      to[static_cast<std::size_t>(i % detail::kLanes)] +=
          negative[row * detail::kLanes + static_cast<std::size_t>(i)] != 0 ? -1 : 1;
  };
  std::array<Sketch, 16> full{};  // a block that is entered at each of the rows of signs
  for (std::size_t row = 0; row < full.size(); ++row) add_block(row, detail::kBlock, full[row]);
  Sketch all{};
  for (std::int64_t c = 0; c * detail::kBlock < n; ++c) {
    const detail::Turn turn(static_cast<std::uint64_t>(c));
    const auto row = static_cast<std::size_t>(turn.signs() / detail::kLanes);
    const auto size = static_cast<int>(std::min<std::int64_t>(detail::kBlock, n - c * detail::kBlock));
    Sketch part{};
    if (size < detail::kBlock) add_block(row, size, part);
    const Sketch& block = size < detail::kBlock ? part : full[row];
    for (std::size_t l = 0; l < all.size(); ++l)
      all[(l + static_cast<std::size_t>(turn.first())) % all.size()] +=
          turn.negative() ? -block[l] : block[l];
  }
  return all;
}

}  // namespace

double cosine(const Fingerprint& a, const Fingerprint& b) {
  double product = 0;
  for (int l = 0; l < Fingerprint::kSketch; ++l) product += a.sketch[l] * b.sketch[l];
  return std::clamp(product / std::sqrt(a.sum_sq) / std::sqrt(b.sum_sq), -1.0, 1.0);
}

std::optional<Line> line(const Fingerprint& a, const Fingerprint& b) {
  if (!comparable(a, b) || a.nans + a.infinities != 0) return std::nullopt;  // where those are is not known
  const std::int64_t samples = std::min<std::int64_t>(a.numel(), Fingerprint::kSamples);
  double n = 0, mean_a = 0, mean_b = 0, both = 0, squares = 0;
  for (std::int64_t k = 0; k < samples; ++k) {  // Welford's recurrence
    const double x = a.samples[k], y = b.samples[k];
    n += 1;
    const double from_mean = x - mean_a;
    mean_a += from_mean / n;
    mean_b += (y - mean_b) / n;
    both += from_mean * (y - mean_b);
    squares += from_mean * (x - mean_a);
  }
  if (n < 3 || squares <= 0) return std::nullopt;
  const double slope = both / squares, offset = mean_b - slope * mean_a;
  const Sketch ones = sketch_of_ones(a.numel());
  double rest = 0;
  for (std::size_t l = 0; l < ones.size(); ++l) {
    const double left = b.sketch[l] - slope * a.sketch[l] - offset * ones[l];
    rest += left * left;
  }
  return Line{slope, offset, rest == 0 ? 0 : std::sqrt(rest / b.sum_sq)};
}

Range greatest_error(const Fingerprint& a, const Fingerprint& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!comparable(a, b)) return {kInfinity, kInfinity};
  double square = 0, least = 0;
  for (int l = 0; l < Fingerprint::kSketch; ++l)
    square += (a.sketch[l] - b.sketch[l]) * (a.sketch[l] - b.sketch[l]);
  for (int k = 0; k < Fingerprint::kSamples; ++k) {
    const double difference = std::abs(double{a.samples[k]} - b.samples[k]);
    if (std::isfinite(difference)) least = std::max(least, difference);
  }
  return {least, std::max(least, std::sqrt(square))};
}

std::optional<std::int64_t> count_different(const Fingerprint& a, const Fingerprint& b) {
  if (same_bits(a, b)) return 0;
  if (!comparable(a, b)) return std::nullopt;
  const auto equal = std::count_if(a.sketch, a.sketch + Fingerprint::kSketch,
                                   [&](const double& sum) { return sum == b.sketch[&sum - a.sketch]; });
  const auto different = Fingerprint::kSketch - equal;
  if (different == 0) return std::nullopt;
  if (a.numel() <= Fingerprint::kSketch) return different;  // each is a sum of its own
  if (different > Fingerprint::kSketch / 2) return std::nullopt;
  // So many fall on different sums if each falls on any (Whang, Vander-Zanden & Taylor 1990).
  return std::llround(-Fingerprint::kSketch * std::log(static_cast<double>(equal) / Fingerprint::kSketch));
}

Reordered reordered(const Fingerprint& a, const Fingerprint& b) {
  if (!comparable(a, b) || same_bits(a, b)) return Reordered::no;
  // Other tensors of the same kind agree to about 1 / sqrt(n).
  const double n = static_cast<double>(a.numel()), norm = std::sqrt(a.sum_sq);
  const double close = std::min(1e-4, 0.1 / std::sqrt(n));
  const bool short_numbers = c10::elementSize(a.scalar_type()) == 2 || c10::elementSize(b.scalar_type()) == 2;
  const double end = short_numbers ? 1.0 / 128 : 1e-4;
  if (std::abs(a.sum_sq - b.sum_sq) > close * a.sum_sq ||
      std::abs(a.sum - b.sum) > close * norm * std::sqrt(n) ||
      std::abs(a.least - b.least) > end * std::abs(a.least) ||
      std::abs(a.greatest - b.greatest) > end * std::abs(a.greatest))
    return Reordered::no;
  const double error = relative_error(a, b);
  if (a.dtype == b.dtype && a.words == b.words && a.exclusive == b.exclusive && a.either == b.either &&
      a.zeros == b.zeros && (a.shape() == b.shape() || error > 1e-6))  // and not only reshaped
    return Reordered::exactly;
  return error > std::max(1e-3, end) ? Reordered::up_to_rounding : Reordered::no;
}

std::optional<c10::ScalarType> precision_of(const Fingerprint& a) {
  if (a.scalar_type() != c10::ScalarType::Float || (a.either & 0x7FFFFFFFU) == 0) return std::nullopt;
  if ((a.either & 0xFFFFU) == 0) return c10::ScalarType::BFloat16;
  if ((a.either & 0x1FFFU) == 0) return c10::ScalarType::Half;
  return std::nullopt;
}

bool all_zero(const Fingerprint& a) {
  return a.zeros != 0 && a.zeros == static_cast<std::uint64_t>(a.numel());
}

}  // namespace torchtap::views::compare
