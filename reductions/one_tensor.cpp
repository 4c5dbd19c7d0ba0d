// Implements what reductions of one tensor have in common, `First` and `Last`.

#include <ATen/Functions.h>

#include <cstring>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/first.hpp>
#include <torchtap/reductions/last.hpp>

namespace torchtap::reductions {

at::Tensor OneTensor::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  return detail::own_copy(*value_);
}

core::Results OneTensor::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  return intake_.with_omitted({{"value", value()}});
}

void OneTensor::set_value(const at::Tensor& value, c10::ScalarType dtype) {
  const base::RecordingMode quiet;
  intake_.check_assign(value);
  value_ = detail::own_copy(value, dtype);
  intake_.assign(value);
}

namespace {

at::Tensor row(const detail::Rows& rows, bool last) {
  at::Tensor row = rows.view;
  for (std::size_t i = 0; i < rows.folded.size(); ++i) row = row.select(0, last ? row.size(0) - 1 : 0);
  return row;
}

}  // namespace

First::First(FirstOptions options) : OneTensor(detail::Intake("First", options.folding()), Order::matters) {}

void First::combine_rows(const Pass& /*pass*/, const detail::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  if (!value_) value_ = detail::own_copy(row(rows, /*last=*/false));
}

void First::merge(const First& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (count() == 0) value_ = other.value_;
  intake_.merge(other.intake_);
}

Last::Last(LastOptions options) : OneTensor(detail::Intake("Last", options.folding()), Order::matters) {}

bool Last::combine_lines(const detail::Lines& lines) {
  if (value_->scalar_type() != lines.type || !value_->device().is_cpu()) return false;
  const std::int64_t bytes = lines.bytes();
  std::memcpy(value_->data_ptr(), lines.at(lines.rows - 1, bytes).data, static_cast<std::size_t>(bytes));
  return true;
}

bool Last::combine_all(const detail::Memory& all) {
  return combine_lines({all.type, all.data, all.numel, 1});
}

void Last::combine_rows(const Pass& /*pass*/, const detail::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  const at::Tensor last = row(rows, /*last=*/true);
  if (value_ && value_->scalar_type() == last.scalar_type()) {
    value_->copy_(last);
  } else {
    value_ = detail::own_copy(last);
  }
}

void Last::merge(const Last& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  value_ = detail::Owned(count() == 0 ? detail::own_copy(*other.value_)
                                      : detail::own_copy(other.value_->to(value_->device())));
  intake_.merge(other.intake_);
}

}  // namespace torchtap::reductions
