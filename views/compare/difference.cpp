// Measures the difference of two fingerprints and puts it in words.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/views/compare/difference.hpp>

namespace torchtap::views::compare {

namespace {

double unit_of(std::uint8_t dtype) {
  switch (dtype) {
    case 5:  // float16, complex32
    case 8:
      return 0x1p-11;
    case 6:  // float32, complex64
    case 9:
      return 0x1p-24;
    case 7:  // float64, complex128
    case 10:
      return 0x1p-53;
    case 12:  // the quantized ones, bfloat16
    case 13:
    case 14:
    case 15:
      return 0x1p-8;
    case 23:  // float8_e5m2, float8_e5m2fnuz
    case 25:
      return 0x1p-3;
    case 24:  // float8_e4m3fn, float8_e4m3fnuz
    case 26:
      return 0x1p-4;
    default:
      return 0;
  }
}

using Sizes = std::vector<std::int64_t>;

/// The sizes but for ones.
Sizes sizes_of(const Fingerprint& print) {
  Sizes sizes;
  for (const auto size : print.shape()) {
    if (size != 1) sizes.push_back(size);
  }
  return sizes;
}
bool same_but_for_ones(const Fingerprint& a, const Fingerprint& b) {
  return sizes_of(a) == sizes_of(b);
}
/// Whether both have the same sizes but for ones, in another order.
bool permuted(const Fingerprint& a, const Fingerprint& b) {
  const Sizes mine = sizes_of(a), its = sizes_of(b);
  return mine != its && std::is_permutation(mine.begin(), mine.end(), its.begin(), its.end());
}

bool same_multiset(const Fingerprint& a, const Fingerprint& b) {
  return a.dtype == b.dtype && a.numel() == b.numel() && a.words == b.words && a.exclusive == b.exclusive &&
         a.either == b.either;
}

/// The relative error of the sums that do not depend on the order.
double error_in_any_order(const Fingerprint& a, const Fingerprint& b) {
  if (same_multiset(a, b)) return 0;
  if (a.nans != b.nans || a.infinities != b.infinities) return std::numeric_limits<double>::infinity();
  const double norm = std::sqrt(std::max(a.sum_sq, b.sum_sq));
  if (!(norm > 0)) return 0;
  const double largest = std::max(std::abs(a.least), std::abs(a.greatest));
  const double ends = std::max(std::abs(a.least - b.least), std::abs(a.greatest - b.greatest));
  return std::max({std::abs(a.sum - b.sum) / (norm * std::sqrt(static_cast<double>(a.numel()))),
                   std::abs(a.sum_sq - b.sum_sq) / (norm * norm), largest > 0 ? ends / largest : 0});
}

std::string text(double value) {
  return base::number_text(value, 6);
}

/// "A.transpose(2, 3)", …: the orders of A's dimensions that give B's sizes.
std::string reordered(const Fingerprint& a, const Fingerprint& b) {
  if (a.dims != b.dims || a.dims < 2 || a.dims > 6) return {};
  Sizes order(a.dims);
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::pair<int, std::string>> found;  // the fewest moved dimensions first
  while (std::next_permutation(order.begin(), order.end())) {
    Sizes places;  // those longer than 1, which have to be in another order for values to be
    bool fits = true;
    for (int i = 0; i < a.dims; ++i) {
      fits &= a.sizes[order[i]] == b.sizes[i];
      if (a.sizes[order[i]] != 1) places.push_back(order[i]);
    }
    if (!fits || std::is_sorted(places.begin(), places.end())) continue;
    int moves = 0, last = 0, first = a.dims;
    for (int i = 0; i < a.dims; ++i) {
      if (order[i] != i) ++moves, last = i, first = std::min(first, i);
    }
    if (a.numel() <= Fingerprint::kSamples) {  // all elements are there
      const at::Tensor all =
          at::from_blob(const_cast<float*>(a.samples), a.shape(),
                        c10::isComplexType(a.scalar_type()) ? at::kComplexFloat : at::kFloat);
      const at::Tensor moved = all.permute(at::IntArrayRef(order)).contiguous();
      if (std::memcmp(moved.data_ptr(), b.samples, moved.nbytes()) != 0) continue;
    }
    found.emplace_back(moves, moves == 2 ? c10::str("A.transpose(", first, ", ", last, ")")
                                         : c10::str("A.permute(", c10::Join(", ", order), ")"));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  if (found.empty()) return {};
  const bool sure = found.size() == 1 && (a.shape() != b.shape() || a.numel() <= Fingerprint::kSamples);
  if (sure) return ": B = " + found[0].second;
  return ", such as " + found[0].second + (found.size() > 1 ? " or " + found[1].second : "");
}

/// "B = 2 A - 1", if the samples and the sums agree with it.
std::string linear(const Fingerprint& a, const Fingerprint& b) {
  const auto n = static_cast<double>(a.numel());
  const auto count = static_cast<int>(std::min<std::int64_t>(a.numel(), Fingerprint::kSamples));
  if (count < 8) return {};
  double mean_a = 0, mean_b = 0, aa = 0, ab = 0, largest = 0, rest = 0;
  for (int i = 0; i < count; ++i) mean_a += a.samples[i] / count, mean_b += b.samples[i] / count;
  for (int i = 0; i < count; ++i) {
    aa += (a.samples[i] - mean_a) * (a.samples[i] - mean_a);
    ab += (a.samples[i] - mean_a) * (b.samples[i] - mean_b);
    largest = std::max(largest, std::abs(double{b.samples[i]}));
  }
  if (!(aa > 0) || !(largest > 0)) return {};
  const double slope = ab / aa;
  double offset = mean_b - slope * mean_a;
  for (int i = 0; i < count; ++i)
    rest = std::max(rest, std::abs(slope * a.samples[i] + offset - b.samples[i]));
  rest /= largest;
  const double about = std::max(1e-5, 4 * std::max(unit_of(a.dtype), unit_of(b.dtype)));
  if (std::abs(offset) < 10 * about * largest && std::abs(offset) < 10 * rest * largest + 1e-6 * largest)
    offset = 0;
  const double sum = slope * a.sum + offset * n;
  const double square = slope * slope * a.sum_sq + 2 * slope * offset * a.sum + offset * offset * n;
  if (!(rest < about) || !(std::abs(square - b.sum_sq) < 4 * about * b.sum_sq) ||
      !(std::abs(sum - b.sum) < 4 * about * std::sqrt(b.sum_sq * n)) ||
      !(std::abs(slope - 1) + std::abs(offset) / largest > 10 * std::max(rest, 1e-7)))
    return {};
  std::string words = "B = " + (text(slope) == "1" ? "" : text(slope) + " ") + "A";
  if (words == "B = A" && offset == 0) return {};
  if (offset != 0) words += (offset < 0 ? " - " : " + ") + text(std::abs(offset));
  return words;
}

}  // namespace

Difference difference(const Fingerprint& a, const Fingerprint& b) {
  Difference result;
  result.unit = std::max(unit_of(a.dtype), unit_of(b.dtype));
  result.elements = std::max(1.0, static_cast<double>(a.numel()));
  result.same_bits = same_bits(a, b);
  if (result.same_bits) return result;
  result.scale = log_scale(a, b);
  result.error = relative_error(a, b);
  result.reshaped = a.shape() != b.shape() && a.numel() == b.numel();
  const bool other_order = permuted(a, b);
  if (a.numel() == b.numel() && other_order) result.error = std::min(result.error, error_in_any_order(a, b));
  // None of these has elements that could show it.
  if (a.numel() == 0 && b.numel() == 0 && result.reshaped && !other_order && !same_but_for_ones(a, b))
    result.error = std::numeric_limits<double>::infinity();
  // Sketches do not hold large whole numbers, digests do.
  const bool exact = is_whole(a) && a.dtype == b.dtype && a.shape() == b.shape();
  if (exact) result.error = std::max(result.error, std::numeric_limits<double>::epsilon());
  return result;
}

bool is_whole(const Fingerprint& print) {
  return print.dtype <= 4 || print.dtype == 11 || (print.dtype >= 27 && print.dtype <= 29);
}

std::pair<std::string, std::string> excerpts(const std::string& a, const std::string& b) {
  constexpr std::size_t kBefore = 30, kMost = 100;
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  const auto excerpt = [&](const std::string& text) {
    const auto inside = [&](std::size_t at) {  // a character, in UTF-8
      return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
    };
    if (text.size() <= kMost) return text;
    std::size_t begin = std::min(static_cast<std::size_t>(differ), text.size());
    begin -= std::min(begin, kBefore);
    std::size_t end = std::min(begin + kMost, text.size());
    while (inside(begin)) ++begin;
    while (inside(end)) --end;
    return (begin == 0 ? "" : "… ") + text.substr(begin, end - begin) + (end == text.size() ? "" : " …");
  };
  return {excerpt(a), excerpt(b)};
}

std::string in_words(const Fingerprint& a, const Fingerprint& b) {
  if (same_bits(a, b)) return {};
  const auto counted = [](const char* what, std::uint64_t of_a, std::uint64_t of_b) {
    return c10::str("A has ", of_a, " ", what, ", B has ", of_b);
  };
  if (a.nans != b.nans) return counted("NaN", a.nans, b.nans);
  if (a.infinities != b.infinities) return counted("infinities", a.infinities, b.infinities);
  if (a.places != b.places && a.places != 0 && b.places != 0 && a.shape() == b.shape())
    return a.infinities == 0 ? "NaN is at other places"
                             : "infinities have another sign or are at other places";
  std::string shapes = a.shape() == b.shape() ? "" : c10::str(a.shape(), " in A, ", b.shape(), " in B");
  if (a.numel() != b.numel()) return shapes;
  if (same_multiset(a, b)) {
    const bool reshaped =
        !shapes.empty() && std::memcmp(a.samples, b.samples, sizeof a.samples) == 0;  // NOLINT: the same bits
    if (reshaped && relative_error(a, b) == 0) return "the same values, " + shapes;
    return "the same values in another order" + reordered(a, b);
  }
  if (b.least == b.greatest && a.least != a.greatest && b.least != 0 && b.nans + b.infinities == 0)
    return "B is " + text(b.least) + " everywhere";
  if (a.sum_sq > 0 && !(b.sum_sq > 0)) return "B is all zeros";
  if (b.sum_sq > 0 && !(a.sum_sq > 0)) return "A is all zeros";
  const double error = relative_error(a, b);
  if (a.dtype == 6 && b.dtype == 6) {
    struct Grid {
      std::uint32_t mask;
      const char* name;
      double unit;
    };
    for (const Grid& grid : {Grid{0xFFFF, "bfloat16", 0x1p-8}, Grid{0x1FFF, "float16", 0x1p-11}}) {
      const bool of_a = (a.either & grid.mask) == 0, of_b = (b.either & grid.mask) == 0;
      if (of_a != of_b && error < grid.unit) return c10::str(of_a ? "A" : "B", " is rounded to ", grid.name);
    }
  }
  const int changed = static_cast<int>(std::inner_product(std::begin(a.sketch), std::end(a.sketch), b.sketch,
                                                          0, std::plus<>(), std::not_equal_to<>()));
  if (changed > 0 && changed <= 8 && a.numel() > 1000 && a.dtype == b.dtype) {
    const auto count = std::max(1L, std::lround(-64 * std::log1p(-changed / 64.0)));
    return c10::str(count == 1 ? "one" : c10::str("about ", count), " of ", a.numel(),
                    count == 1 ? " values differs" : " values differ");
  }
  if (error > 1e-3 && error_in_any_order(a, b) < 1e-4)
    return "the same values up to rounding, in another order";
  const std::string formula = linear(a, b);
  return !formula.empty() ? formula : shapes;
}

}  // namespace torchtap::views::compare
