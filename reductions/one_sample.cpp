// Implements `First` and `Last`.

#include <ATen/Functions.h>

#include <cstring>
#include <optional>
#include <utility>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/first.hpp>
#include <torchtap/reductions/last.hpp>

namespace torchtap::reductions {
namespace {

at::Tensor row(const detail::Rows& rows, bool last) {
  at::Tensor row = rows.view;
  for (std::size_t i = 0; i < rows.folded.size(); ++i) row = row.select(0, last ? row.size(0) - 1 : 0);
  return row;
}

/// The number of rows of a small sample like those before; nothing if it is none. Rows lie one after another.
std::optional<std::int64_t> small_rows(const detail::Intake& intake, const Pass& pass) {
  if (const auto* const all = intake.whole(pass)) return all->numel;
  const auto lines = intake.lines(pass);
  return lines ? std::optional<std::int64_t>(lines->rows) : std::nullopt;
}

}  // namespace

OneSample::OneSample(const char* name, detail::Folding folding)
    : Reduction(detail::Intake(name, std::move(folding)), Order::matters) {}

void OneSample::assign(const at::Tensor& value) {
  const base::RecordingMode quiet;
  intake_.check_assign(value);
  value_ = detail::own_copy(value);
  intake_.assign(value);
}

at::Tensor OneSample::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  return detail::own_copy(*value_);
}

core::Results OneSample::results() const {
  if (count() == 0) return {};
  return {{"value", value()}};
}

void OneSample::clear() {
  intake_ = intake_.fresh();
  value_ = detail::Owned();
}

First::First(FirstOptions options) : OneSample("First", options.folding()) {}

void First::fold(const Pass& pass) {
  if (const auto rows = small_rows(intake_, pass)) return intake_.count_rows(*rows);
  const base::RecordingMode quiet;
  const at::Tensor& sample = pass.sample();
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  if (!value_) value_ = detail::own_copy(row(rows, /*last=*/false));
  intake_.commit(rows);
}

void First::merge(const First& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (count() == 0) value_ = other.value_;
  intake_.merge(other.intake_);
}

Last::Last(LastOptions options) : OneSample("Last", options.folding()) {}

void Last::fold(const Pass& pass) {
  const auto small = small_rows(intake_, pass);
  if (small && value_->scalar_type() == detail::kernels_of(pass).memory()->type &&
      value_->device().is_cpu()) {
    const auto bytes = static_cast<std::size_t>(value_->nbytes());
    const auto all = static_cast<std::size_t>(pass.sample().nbytes());
    std::memcpy(value_->data_ptr(), detail::kernels_of(pass).memory()->data + (all - bytes), bytes);
    return intake_.count_rows(*small);
  }
  const base::RecordingMode quiet;
  const at::Tensor& sample = pass.sample();
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const at::Tensor last = row(rows, /*last=*/true);
  if (value_ && value_->scalar_type() == last.scalar_type()) {
    value_->copy_(last);
  } else {
    value_ = detail::own_copy(last);
  }
  intake_.commit(rows);
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
