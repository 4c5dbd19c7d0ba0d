// Counts the values of tensors.
#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/base/of_thread.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/pass.hpp>
#include <torchtap/views/watch/column.hpp>

namespace torchtap::views::watch {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
constexpr reductions::extend::BitBins slots{mantissa_bits};

/// The numbers of any tensor, in memory and without holes.
at::Tensor plain(const at::Tensor& tensor) {
  base::expect_no_capture(tensor.device(), "watch");
  at::Tensor x = tensor.detach();
  if (x.is_sparse()) x = x.coalesce().values();
  if (x.layout() != c10::kStrided) x = x.to_dense();
  if (x.is_quantized()) x = x.dequantize();
  if (x.is_complex()) x = at::view_as_real(x.resolve_conj());
  if (!x.device().is_cpu()) x = x.to(at::kCPU);
  return x.is_non_overlapping_and_dense() && !x.is_neg() && !x._is_zerotensor() ? x : x.resolve_neg().clone();
}

/// Counts by slot, made anew for each tensor of the same thread in the same memory.
class Slots {
 public:
  void add(std::uint32_t slot, std::uint64_t count) { counts_[slot] += count; }

  /// Moves the counts into a column.
  void give(Column& to) {
    const auto take = [&](std::int64_t slot) {
      return std::exchange(counts_[static_cast<std::size_t>(slot)], 0);
    };
    to.nan = take(slots.nan());
    to.zeros = take(slots.zero());
    to.posinf = take(slots.infinity());
    to.neginf = take(slots.negative() + slots.infinity());
    Bins bins;
    for (const std::uint32_t sign : {0U, negative}) {
      for (std::uint32_t bin = sign; bin < sign + magnitudes; ++bin) {
        if (const auto count = take(bin); count != 0) bins.emplace_back(bin, count);
      }
    }
    to.n_bins = static_cast<std::uint32_t>(bins.size());
    to.bins = base::packed_counts(bins);
  }

 private:
  std::array<std::uint64_t, (512U << mantissa_bits) + 2> counts_{};
};

std::uint32_t slot_of(double value) {
  if (std::isnan(value)) return static_cast<std::uint32_t>(slots.nan());
  if (value == 0) return static_cast<std::uint32_t>(slots.zero());
  if (std::isinf(value))
    return static_cast<std::uint32_t>(slots.infinity() + (value < 0 ? slots.negative() : 0));
  return bin_of(value);
}

/// The ends of a bin.
rules::Bin edges_of(std::uint32_t bin) {
  const auto edge = [](std::uint32_t magnitude) {
    const std::uint32_t first = 1U << mantissa_bits;
    const std::uint32_t octave = magnitude < first ? 0 : (magnitude >> mantissa_bits) - 1;
    return std::ldexp(static_cast<double>(magnitude - octave * first),
                      static_cast<int>(octave) - 126 - mantissa_bits);
  };
  if (bin >= negative) return {-edge(bin - negative + 1), -edge(bin - negative), 0};
  return {edge(bin), edge(bin + 1), 0};
}

}  // namespace

std::uint32_t bin_of(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  constexpr double each = 1 << mantissa_bits;
  std::uint32_t magnitude = 0;
  if (exponent > 128) {
    magnitude = magnitudes - 1;
  } else if (exponent >= -125) {
    magnitude = (static_cast<std::uint32_t>(exponent + 126) << mantissa_bits) +
                static_cast<std::uint32_t>((fraction * 2 - 1) * each);
  } else {  // below the least normal float32, bins have the width of the first
    magnitude = static_cast<std::uint32_t>(std::ldexp(std::abs(value), 126 + mantissa_bits));
  }
  return value < 0 ? negative + magnitude : magnitude;
}

double middle_of(std::uint32_t bin) {
  const rules::Bin edges = edges_of(bin);
  return (edges.low + edges.high) / 2;
}

Column measure(const at::Tensor& tensor) {
  const base::RecordingMode quiet;
  Column column;
  column.min = column.max = nothing;
  if (tensor.numel() == 0 || tensor.is_meta()) return column;
  const at::Tensor x = plain(tensor);
  column.count = static_cast<std::uint64_t>(x.numel());
  reductions::Pass pass(x);
  pass.ask_total({true, false});
  reductions::extend::ask_bits(pass, slots);
  auto& counts = base::of_thread<Slots>();
  if (const auto* const found = reductions::extend::count_bits(pass, slots)) {
    for (const auto& [slot, count] : *found) counts.add(slot, static_cast<std::uint64_t>(count));
  } else {
    const at::Tensor wide = x.to(at::kDouble).contiguous();
    const double* const data = wide.data_ptr<double>();
    for (std::int64_t i = 0; i < wide.numel(); ++i) counts.add(slot_of(data[i]), 1);
  }
  counts.give(column);
  const reductions::Summary total = pass.total();
  column.sum = total.sum;
  column.sum_squares = total.m2 + static_cast<double>(total.taken) * total.mean * total.mean;
  if (std::isnan(column.sum_squares))
    column.sum_squares = std::numeric_limits<double>::infinity();  // beyond float64
  if (total.taken == 0) return column;
  column.min = total.min;
  column.max = total.max;
  return column;
}

void Column::merge(const Column& other) {
  if (count == 0 && other.count == 0) {
    last_step = std::max(last_step, other.last_step);
    return;
  }
  const auto less = [](double a, double b) { return std::isnan(a) || b < a ? b : a; };
  const auto more = [](double a, double b) { return std::isnan(a) || b > a ? b : a; };
  first_step = std::min(first_step, other.first_step);
  last_step = std::max(last_step, other.last_step);
  count += other.count;
  nan += other.nan;
  posinf += other.posinf;
  neginf += other.neginf;
  zeros += other.zeros;
  min = less(min, other.min);
  max = more(max, other.max);
  sum += other.sum;
  sum_squares += other.sum_squares;
  const Bins mine = unpack(bins, n_bins), theirs = unpack(other.bins, other.n_bins);
  Bins both;
  for (auto a = mine.begin(), b = theirs.begin(); a != mine.end() || b != theirs.end();) {
    if (b == theirs.end() || (a != mine.end() && a->first < b->first)) {
      both.push_back(*a++);
    } else if (a == mine.end() || b->first < a->first) {
      both.push_back(*b++);
    } else {
      both.emplace_back(a->first, a->second + b->second);
      ++a;
      ++b;
    }
  }
  n_bins = static_cast<std::uint32_t>(both.size());
  bins = base::packed_counts(both);
}

double Column::mean() const {
  return finite() == 0 ? nothing : sum / static_cast<double>(finite());
}

double Column::deviation() const {
  if (finite() == 0) return nothing;
  const double average = mean();
  return std::sqrt(std::max(0.0, sum_squares / static_cast<double>(finite()) - average * average));
}

double Column::norm() const {
  return std::sqrt(sum_squares);
}

double Column::root_mean_square() const {
  return finite() == 0 ? nothing : norm() / std::sqrt(static_cast<double>(finite()));
}

void put(const Column& column, rules::Facts& facts) {
  facts.count = static_cast<double>(column.count);
  facts.nan = static_cast<double>(column.nan);
  facts.inf = static_cast<double>(column.posinf + column.neginf);
  facts.zeros = static_cast<double>(column.zeros);
  facts.bins.clear();
  for (const auto& [bin, count] : unpack(column.bins, column.n_bins)) {
    facts.bins.push_back(edges_of(bin));
    facts.bins.back().count = static_cast<double>(count);
  }
  // Negative ones come last, the nearest to zero first.
  const auto negatives =
      std::find_if(facts.bins.begin(), facts.bins.end(), [](const rules::Bin& bin) { return bin.low < 0; });
  std::reverse(negatives, facts.bins.end());
  std::rotate(facts.bins.begin(), negatives, facts.bins.end());
  if (column.finite() == 0) return;
  facts.min = column.min;
  facts.max = column.max;
  facts.mean = column.mean();
  facts.rms = column.root_mean_square();
  facts.std = column.deviation();
}

Bins unpack(const std::string& packed, std::uint32_t count) {
  Bins bins;
  const bool sound = base::unpack_counts(packed, negative + magnitudes, UINT64_MAX, bins);
  TORCH_CHECK_VALUE(sound && bins.size() == count, "views::watch: ", packed.size(), " bytes are not the ",
                    count, " bins of a histogram that they should be; the file or message is damaged.");
  return bins;
}

}  // namespace torchtap::views::watch
