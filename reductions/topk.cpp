#include <ATen/Functions.h>

#include <algorithm>
#include <limits>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/topk.hpp>

namespace torchtap::reductions {

TopK::TopK(TopKOptions options)
    : intake_("TopK", options.folding(), detail::Accepts::real),
      k_(options.k()),
      largest_(options.largest()) {
  TORCH_CHECK_VALUE(k_ > 0, "TopK: k must be positive, got ", k_, ".");
}

double TopK::worst() const {
  const double infinity = std::numeric_limits<double>::infinity();
  return largest_ ? -infinity : infinity;
}

void TopK::fold(const at::Tensor& values, const at::Tensor& indices) {
  const at::Tensor all = values_ ? at::cat({*values_, values}) : values;
  const at::Tensor from = indices_ ? at::cat({*indices_, indices}) : indices;
  // Stable, so that of equal values the earlier sample wins; topk() promises no order among them.
  const auto [sorted, order] = at::sort(all, /*stable=*/true, /*dim=*/0, /*descending=*/largest_);
  const std::int64_t k = std::min(k_, sorted.size(0));
  at::Tensor best = detail::own_copy(sorted.narrow(0, 0, k));
  indices_ = detail::own_copy(from.gather(0, order.narrow(0, 0, k)));
  values_ = std::move(best);
}

void TopK::update(const at::Tensor& sample) {
  const core::detail::RecordingMode quiet;
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const at::Tensor x = rows.flat(rows.filled(worst())).to(detail::kernel_type(sample.scalar_type()));
  at::Tensor indices =
      at::arange(count(), count() + rows.count, x.options().dtype(at::kLong)).unsqueeze(1).expand(x.sizes());
  if (rows.finite.defined()) indices = indices.masked_fill(rows.flat(rows.finite).logical_not(), -1);
  fold(x, indices);
  intake_.commit(rows);
}

void TopK::check(const at::Tensor& sample) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void TopK::merge(const TopK& other) {
  const core::detail::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  const auto device = values_->device();
  const at::Tensor theirs = other.indices_->to(device);
  fold(other.values_->to(device), at::where(at::lt(theirs, 0), theirs, at::add(theirs, count())));
  intake_.merge(other.intake_);
}

at::Tensor TopK::values() const {
  intake_.require_samples("values");
  const core::detail::RecordingMode quiet;
  at::Tensor values = values_->to(intake_.dtype());
  if (intake_.omits() && values.is_floating_point()) {
    values = values.masked_fill(at::lt(*indices_, 0), std::numeric_limits<double>::quiet_NaN());
  }
  auto sizes = intake_.kept().vec();
  sizes.insert(sizes.begin(), values.size(0));
  return detail::own_copy(values.reshape(sizes));
}

at::Tensor TopK::indices() const {
  intake_.require_samples("indices");
  const core::detail::RecordingMode quiet;
  auto sizes = intake_.kept().vec();
  sizes.insert(sizes.begin(), indices_->size(0));
  return detail::own_copy(indices_->reshape(sizes));
}

at::Tensor TopK::omitted() const {
  const core::detail::RecordingMode quiet;
  return intake_.omitted();
}

core::Results TopK::results() const {
  if (count() == 0) return {};
  const core::detail::RecordingMode quiet;
  return intake_.with_omitted({{"values", values()}, {"indices", indices()}});
}

std::string TopK::describe() const {
  return intake_.describe(c10::str(k_, largest_ ? "" : ", smallest"));
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
                         values_->size(1) == intake_.kept_numel() && indices_->scalar_type() == at::kLong);
}

}  // namespace torchtap::reductions
