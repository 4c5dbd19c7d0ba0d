// Counts values by their bits, and computes bins and quantiles from the counts.

#include <ATen/Functions.h>

#include <algorithm>
#include <functional>
#include <limits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/extend/ledger.hpp>
#include <torchtap/statistics/detail/adjacent.hpp>
#include <torchtap/statistics/log_histogram.hpp>

namespace torchtap::reductions {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();
constexpr double endless = std::numeric_limits<double>::infinity();

extend::BitBins checked(std::int64_t mantissa_bits) {
  TORCH_CHECK_VALUE(mantissa_bits >= 0 && mantissa_bits <= 7,
                    "LogHistogram: expected 0 to 7 mantissa bits, got ", mantissa_bits, ".");
  return {static_cast<int>(mantissa_bits)};
}

at::Tensor to_tensor(const std::vector<double>& numbers, const at::Device& device) {
  at::Tensor result =
      at::empty({static_cast<std::int64_t>(numbers.size())}, at::TensorOptions().dtype(at::kDouble));
  std::copy(numbers.begin(), numbers.end(), result.data_ptr<double>());
  return result.to(device);
}

}  // namespace

/// The bins in use, ascending, with zeros and infinities, without NaN.
struct LogHistogram::Bins {
  std::vector<double> low, high;  ///< equal for zeros and infinities
  at::Tensor counts;              ///< [kept elements, bins]

  /// Without zeros and infinities.
  Bins proper() const {
    Bins result;
    std::vector<std::int64_t> columns;
    for (std::size_t i = 0; i < low.size(); ++i) {
      if (low[i] == high[i]) continue;
      result.low.push_back(low[i]);
      result.high.push_back(high[i]);
      columns.push_back(static_cast<std::int64_t>(i));
    }
    result.counts = counts.index_select(1, at::tensor(columns, counts.options()));
    return result;
  }
};

LogHistogram::LogHistogram(LogHistogramOptions options)
    : Reduction(extend::Intake("LogHistogram", options.folding(), extend::Accepts::real)),
      table_(checked(options.mantissa_bits())) {}

void LogHistogram::ask(Pass& pass) const {
  if (!intake_.knows(pass)) extend::parts_of(pass).requests.ask_bits(intake_.folding(), table_.bins());
}

bool LogHistogram::ask_ledger(extend::Ledger& ledger) const {
  return ledger.ask_bits(intake_, table_.bins());
}

bool LogHistogram::combine_lines(const extend::Lines& lines) {
  if (!table_ || !extend::has_bits(lines.type)) return false;
  std::vector<char> copies;
  const extend::Lines all = statistics::detail::adjacent(lines, copies);  // all of them are added, or none
  table_.add(all.type, all.data, all.rows, all.numel);
  return true;
}

bool LogHistogram::combine_all(const extend::Memory& all) {
  if (!table_ || !extend::has_bits(all.type)) return false;
  table_.add(all.type, all.data, all.numel, 1);
  return true;
}

void LogHistogram::combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  if (count() == 0) {
    std::int64_t kept = 1;
    for (const auto size : rows.kept()) kept *= size;
    table_.start(kept, rows.view.device());
  }
  if (const auto* const found = extend::parts_of(pass).answers.count_bits(intake_.folding(), table_.bins())) {
    table_.add(*found);
  } else {
    table_.add(rows);
  }
}

void LogHistogram::merge(const LogHistogram& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  table_.add(other.table_.used());
  intake_.merge(other.intake_);
}

LogHistogram::Bins LogHistogram::bins() const {
  const extend::BitBins bins = table_.bins();
  const statistics::detail::BitTable::Part used = table_.used();
  struct Bin {
    double low, high;
    std::int64_t column;
  };
  std::vector<Bin> all;
  for (std::size_t i = 0; i < used.slots.size(); ++i) {
    const std::int64_t slot = used.slots[i];
    if (slot == bins.nan()) continue;
    const bool negative = slot >= bins.negative();
    const std::int64_t magnitude = negative ? slot - bins.negative() : slot;
    Bin bin{0.0, 0.0, static_cast<std::int64_t>(i)};
    if (slot != bins.zero()) {
      bin.low = magnitude == bins.infinity() ? endless : bins.edge(magnitude);
      bin.high = magnitude == bins.infinity() ? endless : bins.edge(magnitude + 1);
      if (negative) bin = {-bin.high, 0.0 - bin.low, bin.column};
    }
    all.push_back(bin);
  }
  std::sort(all.begin(), all.end(), [](const Bin& a, const Bin& b) {
    return a.low != b.low ? a.low < b.low : a.high < b.high;  // zeros before the bin that begins at 0
  });
  Bins result;
  std::vector<std::int64_t> columns;
  for (const auto& bin : all) {
    result.low.push_back(bin.low);
    result.high.push_back(bin.high);
    columns.push_back(bin.column);
  }
  result.counts = used.counts.index_select(1, at::tensor(columns, used.counts.options()));
  return result;
}

at::Tensor LogHistogram::counts() const {
  intake_.require_samples("counts");
  const base::RecordingMode quiet;
  const at::Tensor counts = bins().proper().counts;
  auto sizes = intake_.kept().vec();
  sizes.push_back(counts.size(1));
  return counts.reshape(sizes);
}

at::Tensor LogHistogram::low() const {
  intake_.require_samples("low");
  const base::RecordingMode quiet;
  return to_tensor(bins().proper().low, intake_.device());
}

at::Tensor LogHistogram::high() const {
  intake_.require_samples("high");
  const base::RecordingMode quiet;
  return to_tensor(bins().proper().high, intake_.device());
}

at::Tensor LogHistogram::column(const char* name, std::int64_t slot) const {
  intake_.require_samples(name);
  const base::RecordingMode quiet;
  return table_.column(slot).reshape(intake_.kept());
}

at::Tensor LogHistogram::zeros() const {
  return column("zeros", table_.bins().zero());
}

at::Tensor LogHistogram::negative_infinity() const {
  return column("negative_infinity", table_.bins().negative() + table_.bins().infinity());
}

at::Tensor LogHistogram::positive_infinity() const {
  return column("positive_infinity", table_.bins().infinity());
}

at::Tensor LogHistogram::nan() const {
  return column("nan", table_.bins().nan());
}

at::Tensor LogHistogram::quantiles(const std::vector<double>& levels) const {
  intake_.require_samples("quantiles");
  TORCH_CHECK_VALUE(std::all_of(levels.begin(), levels.end(), [](double q) { return q >= 0 && q <= 1; }),
                    "LogHistogram::quantiles: expected levels in [0, 1], got ", c10::ArrayRef<double>(levels),
                    ".");
  const base::RecordingMode quiet;
  Bins all = bins();
  const at::Device device = all.counts.device();
  std::vector<double> middle(all.low.size());
  for (std::size_t i = 0; i < middle.size(); ++i)
    middle[i] = all.low[i] == all.high[i] ? all.low[i] : (all.low[i] + all.high[i]) / 2;
  if (middle.empty()) {  // for elements that are all NaN
    middle.push_back(no_number);
    all.counts = at::zeros({all.counts.size(0), 1}, all.counts.options());
  }
  const at::Tensor values = to_tensor(middle, device), ranks = all.counts.cumsum(1);
  const at::Tensor total = ranks.narrow(1, ranks.size(1) - 1, 1);
  const at::Tensor position =
      at::mul(at::sub(total, 1).clamp_min_(0).to(at::kDouble), to_tensor(levels, device));
  const at::Tensor below = position.floor();
  const auto value_at = [&](const at::Tensor& rank) {
    const at::Tensor index = at::searchsorted(ranks, rank.to(at::kLong), /*out_int32=*/false, /*right=*/true);
    return at::take(values, index.clamp_max(values.size(0) - 1));
  };
  const at::Tensor low = value_at(below), high = value_at(position.ceil());
  at::Tensor result =
      at::where(at::eq(low, high), low, at::add(low, at::mul(at::sub(high, low), at::sub(position, below))));
  result.masked_fill_(at::eq(total, 0).expand(result.sizes()), no_number);
  auto sizes = intake_.kept().vec();
  sizes.insert(sizes.begin(), static_cast<std::int64_t>(levels.size()));
  return extend::own_copy(result.t().reshape(sizes));
}

at::Tensor LogHistogram::quantile(double q) const {
  const base::RecordingMode quiet;
  return quantiles({q}).squeeze(0);
}

core::Results LogHistogram::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  const Bins proper = bins().proper();
  auto sizes = intake_.kept().vec();
  sizes.push_back(proper.counts.size(1));
  return {{"counts", proper.counts.reshape(sizes)},
          {"low", to_tensor(proper.low, intake_.device())},
          {"high", to_tensor(proper.high, intake_.device())},
          {"zeros", zeros()},
          {"negative_infinity", negative_infinity()},
          {"positive_infinity", positive_infinity()},
          {"nan", nan()}};
}

std::string LogHistogram::describe() const {
  return intake_.describe(std::to_string(table_.bins().mantissa_bits));
}

LogHistogram LogHistogram::fresh() const {
  LogHistogram fresh(LogHistogramOptions(table_.bins().mantissa_bits));
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void LogHistogram::restored(std::int64_t mantissa_bits, const statistics::detail::BitTable::Part& used) {
  table_ = statistics::detail::BitTable(checked(mantissa_bits));
  const auto& slots = used.slots;
  if (count() == 0) return intake_.check_restored(slots.empty() && !used.counts.defined());
  intake_.check_restored(
      std::adjacent_find(slots.begin(), slots.end(), std::greater_equal<>()) == slots.end() &&
      (slots.empty() || (slots.front() >= 0 && slots.back() < table_.bins().slots())) &&
      used.counts.defined() && used.counts.dim() == 2 && used.counts.size(0) == intake_.kept_numel() &&
      used.counts.size(1) == static_cast<std::int64_t>(slots.size()) &&
      used.counts.scalar_type() == at::kLong);
  const base::RecordingMode quiet;
  intake_.check_restored(at::ge(used.counts, 0).all().item<bool>() &&
                         at::eq(used.counts.sum(1), count()).all().item<bool>());
  table_.start(intake_.kept_numel(), used.counts.device());
  table_.add(used);
}

}  // namespace torchtap::reductions
