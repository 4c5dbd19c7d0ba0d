// Counts values in bins with kernels, plain loops or ATen, and lets the range grow.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/extend/ledger.hpp>
#include <torchtap/statistics/detail/adjacent.hpp>
#include <torchtap/statistics/detail/bin_counts.hpp>
#include <torchtap/statistics/detail/bin_range.hpp>
#include <torchtap/statistics/detail/in_order.hpp>
#include <torchtap/statistics/histogram.hpp>

namespace torchtap::reductions {
namespace {

constexpr std::int64_t kLowest = -1022;  // least exponent: the smallest normal float64
constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// 2^e exactly, for int64 e in [-1022, 1023], built from the bits of a float64; pow() may be off by one ulp.
at::Tensor power_of_two(const at::Tensor& e) {
  return at::mul(at::add(e, 1023), std::int64_t{1} << 52).view(at::kDouble);
}

/// x * 2^e in two steps, as 2^e alone may be out of range.
at::Tensor scaled(const at::Tensor& x, const at::Tensor& e) {
  const at::Tensor half = at::div(e, 2, "floor");
  return at::mul(at::mul(x, power_of_two(half)), power_of_two(at::sub(e, half)));
}

/// In place. LibTorch's own takes 128 KiB of the stack, which a thread of the program may not have.
at::Tensor floored(at::Tensor x) {
  if (!x.is_cpu() || x.scalar_type() != at::kDouble || !x.is_contiguous()) return x.floor_();
  auto* const values = x.data_ptr<double>();
  std::transform(values, values + x.numel(), values, [](double value) { return std::floor(value); });
  return x;
}

/// The index of the cell of width 2^e that holds x. A negative number may be too small to be scaled.
at::Tensor cell(const at::Tensor& x, const at::Tensor& e) {
  const at::Tensor index = floored(scaled(x, e.neg()));
  return index.masked_fill(at::logical_and(at::lt(x, 0), at::eq(index, 0)), -1).to(at::kLong);
}

/// The exponent k with x in [2^(k-1), 2^k).
at::Tensor exponent_of(const at::Tensor& x) {
  return std::get<1>(at::frexp(x)).to(at::kLong);
}

}  // namespace

/// The bins of a growing range: bin i is cell start + i of width 2^exponent.
struct Histogram::Grid {
  at::Tensor exponent, start;

  /// The finest grid that covers [min, max] with `bins` bins; depends on nothing else. Without finite data
  /// (min > max), the grid of the point 0.
  static Grid covering(const at::Tensor& min, const at::Tensor& max, std::int64_t bins) {
    const at::Tensor none = at::gt(min, max);
    const at::Tensor low = min.masked_fill(none, 0.0);
    const at::Tensor high = max.masked_fill(none, 0.0);
    // Cell numbers must be integers that float64 can hold: the width is at least 2^-52 of the largest
    // magnitude.
    const at::Tensor magnitude = at::maximum(low.abs(), high.abs());
    at::Tensor least = at::sub(exponent_of(magnitude), 52).masked_fill(at::eq(magnitude, 0), kLowest);
    // A width w must exceed range/bins, and range/(bins - 1) <= w is enough: three candidates, plus one below
    // for rounding.
    const at::Tensor share =
        at::sub(at::div(high, static_cast<double>(bins)), at::div(low, static_cast<double>(bins)));
    const at::Tensor first =
        at::maximum(at::sub(exponent_of(share), 1).masked_fill(at::eq(share, 0), kLowest), least)
            .clamp(kLowest, 1024);
    at::Tensor exponent = at::add(first, 3);
    for (std::int64_t above = 2; above >= 0; --above) {
      const at::Tensor candidate = at::add(first, above);
      const at::Tensor fits = at::lt(at::sub(cell(high, candidate), cell(low, candidate)), bins);
      exponent = at::where(fits, candidate, exponent);
    }
    return {exponent, cell(low, exponent)};
  }
};

Histogram::Histogram(HistogramOptions options)
    : Reduction(extend::Intake("Histogram", options.folding(), extend::Accepts::real)),
      bins_(options.bins()),
      growing_(options.growing()),
      low_(growing_ ? 0.0 : options.low().value_or(std::numeric_limits<double>::quiet_NaN())),
      high_(growing_ ? 0.0 : options.high().value_or(std::numeric_limits<double>::quiet_NaN())) {
  validate();
  find_edges();
}

void Histogram::validate() const {
  TORCH_CHECK_VALUE(bins_ >= (growing_ ? 2 : 1), "Histogram: needs at least ", growing_ ? 2 : 1,
                    growing_ ? " bins for a growing range, got " : " bin, got ", bins_, ".");
  TORCH_CHECK_VALUE(
      growing_ || std::isnan(low_) == std::isnan(high_),
      "Histogram: needs both edges of its range or none, got low ", low_, " and high ", high_,
      ", of which one was not given; give both, or leave both out to let it grow with the data.");
  TORCH_CHECK_VALUE(growing_ || (low_ < high_ && std::isfinite(high_ - low_)),
                    "Histogram: needs a finite range with low < high, got [", low_, ", ", high_,
                    "]; leave it out to let it grow with the data.");
}

void Histogram::ask(Pass& pass) const {
  if (growing_) pass.ask_total({});
  if (edges_ == nullptr || (slots_ && intake_.knows(pass))) return;
  // A growing range has usually stopped growing by now, unless all elements were equal: the total shows
  // whether they still are.
  if (!growing_ || *min_->data_ptr<double>() < *max_->data_ptr<double>())
    extend::parts_of(pass).requests.ask_bins(intake_.folding(), edges_);
}

bool Histogram::ask_ledger(extend::Ledger& ledger) const {
  return edges_ != nullptr && !growing_ && ledger.ask_bins(intake_, edges_->edges());
}

bool Histogram::combine_lines(const extend::Lines& lines) {
  if (!slots_ || edges_ == nullptr) return false;
  std::vector<char> copies;
  return count_lines(statistics::detail::adjacent(lines, copies));
}

bool Histogram::combine_all(const extend::Memory& all) {
  return slots_ && edges_ != nullptr && count_lines({all.type, all.data, 1, all.numel});
}

void Histogram::combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  if (!slots_) start(rows);
  if (!count_plain(pass) && !count_rows(pass, rows) && !count_on_device(rows)) count_any(rows);
}

void Histogram::start(const extend::Rows& rows) {
  const auto on_device = at::TensorOptions().device(rows.view.device());
  std::int64_t kept = 1;
  for (const auto size : rows.kept()) kept *= size;
  slots_ = at::zeros({kept, bins_ + 3}, on_device.dtype(at::kLong));
  if (!growing_) return;
  min_ = at::full({}, kInf, on_device.dtype(at::kDouble));
  max_ = at::full({}, -kInf, on_device.dtype(at::kDouble));
  grow(*min_, *max_);
}

/// Counts with the kernels if they support the sample.
bool Histogram::count_plain(const Pass& pass) {
  if (!extend::parts_of(pass).sample.plain()) return false;
  if (growing_ && cover_and_count_equal(*extend::parts_of(pass).requests.total())) return true;
  return edges_ != nullptr && extend::parts_of(pass).answers.count_bins(intake_.folding(), edges_,
                                                                        slots_->data_ptr<std::int64_t>());
}

/// Grows the range. If all elements are equal, counts them at once, and returns true.
bool Histogram::cover_and_count_equal(const Summary& all) {
  cover(all);
  const std::int64_t kept = slots_->size(0);
  if (edges_ == nullptr || all.min < all.max || (kept != 1 && all.non_finite() != 0)) return false;
  statistics::detail::count_equal(all, kept, *edges_, slots_->data_ptr<std::int64_t>());
  return true;
}

/// Counts elements in memory with loops. Returns false, having counted nothing, if there are no edges.
bool Histogram::count_lines(const extend::Lines& lines) {
  if (growing_ &&
      cover_and_count_equal(extend::summarize({lines.type, lines.data, lines.rows * lines.numel}, {})))
    return true;
  if (edges_ == nullptr) return false;
  auto* const counters = slots_->data_ptr<std::int64_t>();
  if (slots_->size(0) == 1) {
    statistics::detail::count_all({lines.type, lines.data, lines.rows * lines.numel}, *edges_, counters);
  } else {
    statistics::detail::count_columns(lines, *edges_, counters);
  }
  return true;
}

/// Counts any other real numbers on the CPU with loops.
bool Histogram::count_rows(const Pass& pass, const extend::Rows& rows) {
  if (!statistics::detail::is_countable(rows.view)) return false;
  if (rows.single && edges_ != nullptr &&
      extend::parts_of(pass).sample.plain()) {  // so that the range has grown
    auto* const counters = slots_->data_ptr<std::int64_t>();
    statistics::detail::each_in_order(pass.sample(), [&](const extend::Memory& some, std::int64_t from) {
      statistics::detail::count_columns({some.type, some.data, 1, some.numel}, *edges_,
                                        counters + from * edges_->counters());
    });
    return true;
  }
  const at::Tensor x = rows.flat(rows.view).contiguous();
  return count_lines({x.scalar_type(), static_cast<const char*>(x.data_ptr()), x.size(0), x.size(1)});
}

/// Only needed for the kernels and loops, which only run on the CPU.
void Histogram::find_edges() {
  if (growing_ ? !exponent_ || !exponent_->device().is_cpu() : !intake_.device().is_cpu()) return;
  if (growing_)
    return set_edges(
        statistics::detail::BinRange{*exponent_->data_ptr<std::int64_t>(), *start_->data_ptr<std::int64_t>()}
            .edges(bins_));
  const at::Tensor edges = this->edges().contiguous();
  const auto* const first = edges.data_ptr<double>();
  set_edges({first, first + bins_ + 1});
}

void Histogram::set_edges(std::vector<double> edges) {
  if (edges_ != nullptr && edges_->edges() == edges) return;
  edges_ = nullptr;
  if (std::isfinite(edges.back() - edges.front())) edges_ = extend::make_edges(std::move(edges));
}

/// Lets the range on the CPU grow so that it covers the elements summarised.
void Histogram::cover(const Summary& all) {
  double &min = *min_->data_ptr<double>(), &max = *max_->data_ptr<double>();
  if (all.taken == 0 || (all.min >= min && all.max <= max)) return;
  const double low = std::min(all.min, min), high = std::max(all.max, max);
  std::int64_t &exponent = *exponent_->data_ptr<std::int64_t>(), &start = *start_->data_ptr<std::int64_t>();
  const statistics::detail::BinRange old{exponent, start},
      wider = statistics::detail::BinRange::covering(low, high, bins_);
  if (!(wider == old)) {
    old.regroup(wider, bins_, slots_->size(0), bins_ + 3, slots_->data_ptr<std::int64_t>());
    exponent = wider.exponent;
    start = wider.start;
    set_edges(wider.edges(bins_));
  }
  min = low;
  max = high;
}

/// Counts on a device where there are kernels for these rows; else false.
bool Histogram::count_on_device(const extend::Rows& rows) {
  auto* const kernels = extend::kernels_for(rows);
  if (kernels == nullptr) return false;
  const auto there = extend::device_rows(rows);
  if (growing_) {
    kernels->count_growing_bins(there, *min_, *max_, *exponent_, *start_, *slots_);
  } else {
    kernels->count_bins(there, fixed_edges(rows.view.device()), *slots_);
  }
  return true;
}

void Histogram::count_any(const extend::Rows& rows) {
  const at::Tensor x = rows.flat(rows.view).to(at::kDouble);
  const auto counts = x.options().dtype(at::kLong);
  at::Tensor slot, below, above;
  if (growing_) {
    if (x.numel() != 0) {
      const at::Tensor finite = x.isfinite();
      grow(at::minimum(*min_, at::where(finite, x, at::full({}, kInf, x.options())).amin()),
           at::maximum(*max_, at::where(finite, x, at::full({}, -kInf, x.options())).amax()));
    }
    slot = at::sub(cell(x.masked_fill(x.isfinite().logical_not(), 0.0), *exponent_), *start_);
    below = at::eq(x, -kInf);
    above = at::eq(x, kInf);
  } else {
    slot = at::sub(at::bucketize(x, fixed_edges(x.device()), /*out_int32=*/false, /*right=*/true), 1);
    below = at::lt(x, low_);
    above = at::gt(x, high_);
  }
  slot = slot.clamp_(0, bins_ - 1);
  slot.masked_fill_(below, bins_).masked_fill_(above, bins_ + 1).masked_fill_(x.isnan(), bins_ + 2);
  slots_->scatter_add_(1, slot.t(), at::ones({}, counts).expand({x.size(1), x.size(0)}));
}

void Histogram::grow(const at::Tensor& min, const at::Tensor& max) {
  const Grid grid = Grid::covering(min, max, bins_);
  if (exponent_) coarsen(grid);
  min_ = extend::own_copy(min);
  max_ = extend::own_copy(max);
  exponent_ = extend::own_copy(grid.exponent);
  start_ = extend::own_copy(grid.start);
  find_edges();
}

void Histogram::coarsen(const Grid& grid) {
  const at::Tensor steps = at::sub(grid.exponent, *exponent_).clamp_(0, 62);
  const at::Tensor cells = at::add(at::arange(bins_, slots_->options()), *start_);
  const at::Tensor width = at::bitwise_left_shift(at::ones_like(steps), steps);
  // Cells without counts may fall outside; clamping them adds 0.
  const at::Tensor target = at::sub(at::div(cells, width, "floor"), grid.start).clamp_(0, bins_ - 1);
  const at::Tensor old = slots_->narrow(1, 0, bins_);
  at::Tensor merged = at::zeros_like(old);
  merged.scatter_add_(1, target.unsqueeze(0).expand(old.sizes()), old);
  slots_->narrow(1, 0, bins_).copy_(merged);
}

void Histogram::merge(const Histogram& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  const auto device = slots_->device();
  if (growing_) {
    const at::Tensor min = at::minimum(*min_, other.min_->to(device));
    const at::Tensor max = at::maximum(*max_, other.max_->to(device));
    Histogram theirs = other;
    theirs.grow(min.to(theirs.slots_->device()), max.to(theirs.slots_->device()));
    grow(min, max);
    slots_->add_(theirs.slots_->to(device));
  } else {
    slots_->add_(other.slots_->to(device));
  }
  intake_.merge(other.intake_);
}

at::Tensor Histogram::counts() const {
  intake_.require_samples("counts");
  const base::RecordingMode quiet;
  auto sizes = intake_.kept().vec();
  sizes.push_back(bins_);
  return extend::own_copy(slots_->narrow(1, 0, bins_).reshape(sizes));
}

at::Tensor Histogram::edges() const {
  const base::RecordingMode quiet;
  if (!growing_) return fixed_edges(intake_.device());
  TORCH_CHECK_VALUE(bool(slots_),
                    "Histogram::edges: there are no samples yet; call update first, or check count().");
  // Bins that would reach beyond the largest number end there, where their elements do.
  return scaled(at::add(at::arange(bins_ + 1, slots_->options()), *start_).to(at::kDouble), *exponent_)
      .clamp_(-kMost, kMost);
}

at::Tensor Histogram::fixed_edges(const at::Device& device) const {
  return at::linspace(low_, high_, bins_ + 1, at::TensorOptions().dtype(at::kDouble).device(device));
}

at::Tensor Histogram::column(std::int64_t slot) const {
  const base::RecordingMode quiet;
  return extend::own_copy(slots_->select(1, slot).reshape(intake_.kept()));
}

at::Tensor Histogram::underflow() const {
  intake_.require_samples("underflow");
  return column(bins_);
}

at::Tensor Histogram::overflow() const {
  intake_.require_samples("overflow");
  return column(bins_ + 1);
}

at::Tensor Histogram::nan() const {
  intake_.require_samples("nan");
  return column(bins_ + 2);
}

core::Results Histogram::results() const {
  if (count() == 0) return {};
  return {{"counts", counts()},
          {"edges", edges()},
          {"underflow", underflow()},
          {"overflow", overflow()},
          {"nan", nan()}};
}

std::string Histogram::describe() const {
  return intake_.describe(growing_ ? std::to_string(bins_)
                                   : std::to_string(bins_) + ", " + extend::to_text(low_) + ", " +
                                         extend::to_text(high_));
}

Histogram Histogram::fresh() const {
  Histogram fresh =
      growing_ ? Histogram(HistogramOptions(bins_)) : Histogram(HistogramOptions(bins_, low_, high_));
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void Histogram::restored() {
  validate();
  edges_ = nullptr;
  if (count() == 0) {
    intake_.check_restored(!slots_);
    if (!growing_) find_edges();
    return;
  }
  intake_.check_restored(slots_ && slots_->dim() == 2 && slots_->size(0) == intake_.kept_numel() &&
                         slots_->size(1) == bins_ + 3 && slots_->scalar_type() == at::kLong &&
                         slots_->is_contiguous());
  for (const auto* number : {&min_, &max_, &exponent_, &start_}) {
    const auto dtype = number == &min_ || number == &max_ ? at::kDouble : at::kLong;
    intake_.check_restored(!growing_ ||
                           (*number && (*number)->dim() == 0 && (*number)->scalar_type() == dtype));
  }
  find_edges();
}

}  // namespace torchtap::reductions
