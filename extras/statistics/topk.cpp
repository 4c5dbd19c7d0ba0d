// Keeps the k best values of each kept element in sorted lists, and merges the lists.

#include <ATen/Functions.h>

#include <algorithm>
#include <limits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/statistics/topk.hpp>

namespace torchtap::reductions {

TopK::TopK(TopKOptions options)
    : Reduction(extend::Intake("TopK", options.folding(), extend::Accepts::real), Order::matters),
      k_(options.k()),
      largest_(options.largest()) {
  TORCH_CHECK_VALUE(k_ > 0, "TopK: k must be positive, got ", k_, ".");
}

double TopK::worst() const {
  const double infinity = std::numeric_limits<double>::infinity();
  return largest_ ? -infinity : infinity;
}

void TopK::insert(const at::Tensor& values, const at::Tensor& indices) {
  const at::Tensor all = values_ ? at::cat({*values_, values}) : values;
  const at::Tensor from = indices_ ? at::cat({*indices_, indices}) : indices;
  // Stable, so that among equal values the earlier sample wins; topk() promises no order among them.
  const auto [sorted, order] = at::sort(all, /*stable=*/true, /*dim=*/0, /*descending=*/largest_);
  const std::int64_t k = std::min(k_, sorted.size(0));
  at::Tensor best = extend::own_copy(sorted.narrow(0, 0, k));
  indices_ = extend::own_copy(from.gather(0, order.narrow(0, 0, k)));
  values_ = std::move(best);
}

/// The lists, once they are full, for plain loops.
statistics::detail::Best TopK::best() {
  const std::int64_t width = values_->size(1);
  return {values_->scalar_type(),
          values_->data_ptr(),
          indices_->data_ptr<std::int64_t>(),
          k_,
          width,
          width,
          largest_};
}

bool TopK::combine_lines(const extend::Lines& lines) {
  if (count() < k_ || !statistics::detail::can_offer(lines.type, values_->scalar_type())) return false;
  const statistics::detail::Best best = this->best();
  std::int64_t index = count();
  lines.each([&](const extend::Memory& row) { statistics::detail::offer(best, row, index++); });
  return true;
}

bool TopK::combine_all(const extend::Memory& all) {
  if (count() < k_ || !statistics::detail::can_offer(all.type, values_->scalar_type())) return false;
  statistics::detail::offer_run(best(), all, count());
  return true;
}

void TopK::combine_rows(const Pass& /*pass*/, const extend::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  const at::Tensor x =
      rows.flat(rows.filled(worst())).to(extend::kernel_type(rows.view.scalar_type())).resolve_neg();
  const auto sort = [&](std::int64_t n) {
    at::Tensor indices =
        at::arange(count(), count() + n, x.options().dtype(at::kLong)).unsqueeze(1).expand({n, x.size(1)});
    if (rows.finite.defined())
      indices = indices.masked_fill(rows.flat(rows.finite).narrow(0, 0, n).logical_not(), -1);
    insert(x.narrow(0, 0, n), indices);
  };
  const auto type = x.scalar_type();
  const bool comparable = x.is_cpu() && statistics::detail::can_offer(type, type) && x.numel() != 0 &&
                          (!values_ || (values_->is_cpu() && values_->scalar_type() == type));
  const std::int64_t first =
      std::max<std::int64_t>(0, std::min(rows.count, k_ - count()));  // to fill the lists
  if (!comparable || first == rows.count) {
    sort(rows.count);
  } else {
    // Omitted elements become the worst number there is, which never replaces another in a full list.
    const at::Tensor rest = x.narrow(0, first, rows.count - first).contiguous();
    if (first != 0) sort(first);
    offer(rest, count() + first);
  }
}

/// Takes rows [n, kept elements] into full lists.
void TopK::offer(const at::Tensor& rows, std::int64_t index) {
  const statistics::detail::Best best = this->best();
  const auto* const x = static_cast<const char*>(rows.data_ptr());
  const auto bytes = static_cast<std::int64_t>(rows.element_size());
  const std::int64_t n = rows.size(0);
  if (best.width == 1) return statistics::detail::offer_run(best, {best.type, x, n}, index);
  extend::parallel(best.width, rows.numel(), [&](std::int64_t begin, std::int64_t end) {
    statistics::detail::Best part = best;
    part.values = static_cast<char*>(best.values) + begin * bytes;
    part.rows += begin;
    part.width = end - begin;
    for (std::int64_t row = 0; row < n; ++row)
      statistics::detail::offer(part, {best.type, x + (row * best.width + begin) * bytes, part.width},
                                index + row);
  });
}

void TopK::merge(const TopK& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  const auto device = values_->device();
  const at::Tensor theirs = other.indices_->to(device);
  insert(other.values_->to(device), at::where(at::lt(theirs, 0), theirs, at::add(theirs, count())));
  intake_.merge(other.intake_);
}

at::Tensor TopK::values() const {
  intake_.require_samples("values");
  const base::RecordingMode quiet;
  at::Tensor values = values_->to(intake_.dtype());
  if (intake_.omits() && values.is_floating_point()) {
    values = values.masked_fill(at::lt(*indices_, 0), std::numeric_limits<double>::quiet_NaN());
  }
  auto sizes = intake_.kept().vec();
  sizes.insert(sizes.begin(), values.size(0));
  return extend::own_copy(values.reshape(sizes));
}

at::Tensor TopK::indices() const {
  intake_.require_samples("indices");
  const base::RecordingMode quiet;
  auto sizes = intake_.kept().vec();
  sizes.insert(sizes.begin(), indices_->size(0));
  return extend::own_copy(indices_->reshape(sizes));
}

core::Results TopK::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  return intake_.with_omitted({{"values", values()}, {"indices", indices()}});
}

std::string TopK::describe() const {
  return intake_.describe(std::to_string(k_) + (largest_ ? "" : ", smallest"));
}

TopK TopK::fresh() const {
  TopK fresh(TopKOptions(k_).largest(largest_));
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void TopK::restored() const {
  intake_.check_restored(k_ > 0);
  if (count() == 0) return intake_.check_restored(!values_ && !indices_);
  intake_.check_restored(values_ && indices_ && values_->dim() == 2 &&
                         values_->sizes() == indices_->sizes() && values_->size(0) == std::min(k_, count()) &&
                         values_->size(1) == intake_.kept_numel() && indices_->scalar_type() == at::kLong &&
                         values_->device() == indices_->device() && values_->device() == intake_.device());
}

}  // namespace torchtap::reductions
