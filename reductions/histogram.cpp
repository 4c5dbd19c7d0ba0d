#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/detail/kernels.hpp>
#include <torchtap/reductions/detail/scan.hpp>
#include <torchtap/reductions/histogram.hpp>

namespace torchtap::reductions {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLowest = -1022;  // least exponent: the smallest normal float64

/// 2^e exactly, for int64 e in [-1022, 1023], from the bits of a float64: pow() may be off by one ulp.
at::Tensor power_of_two(const at::Tensor& e) {
  return at::mul(at::add(e, 1023), std::int64_t{1} << 52).view(at::kDouble);
}

/// x * 2^e in two steps, because 2^e alone may be out of range.
at::Tensor scaled(const at::Tensor& x, const at::Tensor& e) {
  const at::Tensor half = at::div(e, 2, "floor");
  return at::mul(at::mul(x, power_of_two(half)), power_of_two(at::sub(e, half)));
}

/// The number of the cell of width 2^e that holds x.
at::Tensor cell(const at::Tensor& x, const at::Tensor& e) {
  return scaled(x, e.neg()).floor_().to(at::kLong);
}

/// The exponent k with x in [2^(k-1), 2^k).
at::Tensor exponent_of(const at::Tensor& x) {
  return std::get<1>(at::frexp(x)).to(at::kLong);
}

}  // namespace

/// Where the bins of a growing range lie: bin i is cell start + i of width 2^exponent.
struct Histogram::Grid {
  at::Tensor exponent, start;

  /// The finest that covers [min, max] with `bins` bins, from the two alone. Without finite data (min > max),
  /// that of the point 0.
  static Grid covering(const at::Tensor& min, const at::Tensor& max, std::int64_t bins) {
    const at::Tensor none = at::gt(min, max);
    const at::Tensor low = min.masked_fill(none, 0.0);
    const at::Tensor high = max.masked_fill(none, 0.0);
    // Cells are numbered by integers that float64 can hold: width at least 2^-52 of the largest magnitude.
    const at::Tensor magnitude = at::maximum(low.abs(), high.abs());
    at::Tensor least = at::sub(exponent_of(magnitude), 52).masked_fill(at::eq(magnitude, 0), kLowest);
    // A width w with range/bins < w is necessary, range/(bins - 1) <= w is enough: three candidates, one more
    // below for rounding.
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
    : intake_("Histogram", options.folding(), detail::Accepts::real),
      bins_(options.bins()),
      growing_(options.growing()),
      low_(options.low()),
      high_(options.high()) {
  validate();
  find_edges();
}

void Histogram::validate() const {
  TORCH_CHECK_VALUE(bins_ >= (growing_ ? 2 : 1), "Histogram: needs at least ", growing_ ? 2 : 1,
                    growing_ ? " bins for a growing range, got " : " bin, got ", bins_, ".");
  TORCH_CHECK_VALUE(growing_ || (low_ < high_ && std::isfinite(high_ - low_)),
                    "Histogram: needs a finite range with low < high, got [", low_, ", ", high_,
                    "]; leave it out to let it grow with the data.");
}

void Histogram::update(const at::Tensor& sample) {
  const core::detail::RecordingMode quiet;
  detail::Scan scan(sample);
  ask(scan);
  update(scan);
}

void Histogram::ask(detail::Scan& scan) const {
  if (growing_) scan.ask_total({});
  if (edges_ != nullptr)
    scan.ask_bins(intake_.folding(), edges_);  // a growing range has grown by now, mostly
}

void Histogram::update(const detail::Scan& scan) {
  const core::detail::RecordingMode quiet;
  const detail::Rows rows = intake_.open(scan.sample());
  if (rows.count == 0) return;
  const auto on_device = at::TensorOptions().device(rows.view.device());
  if (!slots_) {
    std::int64_t kept = 1;
    for (const auto size : rows.kept()) kept *= size;
    slots_ = at::zeros({kept, bins_ + 3}, on_device.dtype(at::kLong));
    if (growing_) {
      min_ = at::full({}, kInfinity, on_device.dtype(at::kDouble));
      max_ = at::full({}, -kInfinity, on_device.dtype(at::kDouble));
      grow(*min_, *max_);
    }
  }
  if (!count_plain(scan)) count_any(rows);
  intake_.commit(rows);
}

/// By the kernels, if they can.
bool Histogram::count_plain(const detail::Scan& scan) {
  if (!scan.plain()) return false;
  if (growing_) {
    const auto total = scan.answer_total();
    const double min = min_->item<double>(), max = max_->item<double>();
    if (total->taken != 0 && (total->min < min || total->max > max)) {
      const auto number = at::TensorOptions().dtype(at::kDouble);
      grow(at::full({}, std::min(total->min, min), number), at::full({}, std::max(total->max, max), number));
    }
  }
  return edges_ != nullptr && scan.count_bins(intake_.folding(), edges_, slots_->data_ptr<std::int64_t>());
}

/// For the kernels, which are there for the CPU alone.
void Histogram::find_edges() {
  if (growing_ ? !exponent_ || !exponent_->device().is_cpu() : !intake_.device().is_cpu()) return;
  const at::Tensor edges = this->edges().contiguous();
  const auto* const first = edges.data_ptr<double>();
  if (edges_ != nullptr && std::equal(edges_->begin(), edges_->end(), first)) return;
  edges_ = nullptr;
  if (!std::isfinite(first[bins_] - first[0])) return;
  edges_ = std::make_shared<const std::vector<double>>(first, first + bins_ + 1);
}

void Histogram::count_any(const detail::Rows& rows) {
  const at::Tensor x = rows.flat(rows.view).to(at::kDouble);
  const auto counts = x.options().dtype(at::kLong);
  at::Tensor slot, below, above;
  if (growing_) {
    if (x.numel() != 0) {
      const at::Tensor finite = x.isfinite();
      grow(at::minimum(*min_, at::where(finite, x, at::full({}, kInfinity, x.options())).amin()),
           at::maximum(*max_, at::where(finite, x, at::full({}, -kInfinity, x.options())).amax()));
    }
    slot = at::sub(cell(x.masked_fill(x.isfinite().logical_not(), 0.0), *exponent_), *start_);
    below = at::eq(x, -kInfinity);
    above = at::eq(x, kInfinity);
  } else {
    slot = at::sub(at::bucketize(x, edges(), /*out_int32=*/false, /*right=*/true), 1);
    below = at::lt(x, low_);
    above = at::gt(x, high_);
  }
  slot = slot.clamp_(0, bins_ - 1);
  slot.masked_fill_(below, bins_).masked_fill_(above, bins_ + 1).masked_fill_(x.isnan(), bins_ + 2);
  slots_->scatter_add_(1, slot.t(), at::ones({}, counts).expand({x.size(1), x.size(0)}));
}

void Histogram::check(const at::Tensor& sample) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void Histogram::check(const detail::Scan& scan) const {
  check(scan.sample());
}

void Histogram::grow(const at::Tensor& min, const at::Tensor& max) {
  const Grid grid = Grid::covering(min, max, bins_);
  if (exponent_) coarsen(grid);
  min_ = detail::own_copy(min);
  max_ = detail::own_copy(max);
  exponent_ = detail::own_copy(grid.exponent);
  start_ = detail::own_copy(grid.start);
  find_edges();
}

void Histogram::coarsen(const Grid& grid) {
  const at::Tensor steps = at::sub(grid.exponent, *exponent_).clamp_(0, 62);
  const at::Tensor cells = at::add(at::arange(bins_, slots_->options()), *start_);
  const at::Tensor width = at::bitwise_left_shift(at::ones_like(steps), steps);
  // Cells without counts may fall outside; they add nothing anywhere.
  const at::Tensor target = at::sub(at::div(cells, width, "floor"), grid.start).clamp_(0, bins_ - 1);
  const at::Tensor old = slots_->narrow(1, 0, bins_);
  at::Tensor merged = at::zeros_like(old);
  merged.scatter_add_(1, target.unsqueeze(0).expand(old.sizes()), old);
  slots_->narrow(1, 0, bins_).copy_(merged);
}

void Histogram::merge(const Histogram& other) {
  const core::detail::RecordingMode quiet;
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
  const core::detail::RecordingMode quiet;
  auto sizes = intake_.kept().vec();
  sizes.push_back(bins_);
  return detail::own_copy(slots_->narrow(1, 0, bins_).reshape(sizes));
}

at::Tensor Histogram::edges() const {
  const core::detail::RecordingMode quiet;
  if (!growing_) {
    const auto options = at::TensorOptions().dtype(at::kDouble).device(intake_.device());
    return at::linspace(low_, high_, bins_ + 1, options);
  }
  TORCH_CHECK_VALUE(bool(slots_),
                    "Histogram::edges: there are no samples yet; update it first, or ask count() before.");
  return scaled(at::add(at::arange(bins_ + 1, slots_->options()), *start_).to(at::kDouble), *exponent_);
}

at::Tensor Histogram::column(std::int64_t slot) const {
  const core::detail::RecordingMode quiet;
  return detail::own_copy(slots_->select(1, slot).reshape(intake_.kept()));
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
  return intake_.describe(growing_
                              ? c10::str(bins_)
                              : c10::str(bins_, ", ", detail::to_text(low_), ", ", detail::to_text(high_)));
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
                         slots_->size(1) == bins_ + 3 && slots_->scalar_type() == at::kLong);
  for (const auto* number : {&min_, &max_, &exponent_, &start_}) {
    intake_.check_restored(!growing_ || (*number && (*number)->dim() == 0));
  }
  find_edges();
}

}  // namespace torchtap::reductions
