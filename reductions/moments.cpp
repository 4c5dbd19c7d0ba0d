// Folds samples into central moments, and combines moments pairwise.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/detail/device_rows.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/moments.hpp>

namespace torchtap::reductions {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor squared(const at::Tensor& x) {
  return x.is_complex() ? at::view_as_real(x).square().sum(-1) : x.square();
}

bool is_order(std::int64_t order) {
  return order == 2 || order == 4;
}

}  // namespace

/// `m2` is undefined for a single row, whose deviations are all 0; `m3` and `m4` also, for complex samples
/// and for order 2.
struct Moments::Part {
  at::Tensor n, mean, m2, m3, m4;
};

Moments::Moments(MomentsOptions options)
    : Reduction(detail::Intake("Moments", options.folding(), detail::Accepts::one_kind)),
      unbiased_(options.unbiased()),
      order_(options.order()) {
  TORCH_CHECK_VALUE(is_order(order_),
                    "Moments: expected order 2 (mean and variance) or 4 (skewness and kurtosis, too), got ",
                    order_, ".");
}

bool Moments::combine_lines(const detail::Lines& lines) {
  auto number = static_cast<double>(count());
  double* const mean = mean_->data_ptr<double>();
  double* const m2 = m2_->data_ptr<double>();
  if (order_ == 2) {
    lines.each([&](const detail::Memory& row) { detail::fold_variance(row, ++number, mean, m2); });
  } else {
    double* const m3 = m3_->data_ptr<double>();
    double* const m4 = m4_->data_ptr<double>();
    lines.each([&](const detail::Memory& row) { detail::fold_moments(row, ++number, mean, m2, m3, m4); });
  }
  return true;
}

void Moments::combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) {
  if (!kept.empty()) {
    if (count() == 0) start(rows.kept(), at::TensorOptions());
    (void)combine_summaries(kept);
  } else if (!fold_elementwise(pass, rows) && !fold_on_device(rows)) {
    combine(part_of(rows));
  }
}

/// Puts the numbers of the state in their order in memory.
void Moments::order_states() {
  for (auto* state : {&mean_, &m2_, &m3_, &m4_}) {
    if (*state) **state = (*state)->contiguous();
  }
}

/// Makes the state of no numbers.
void Moments::start(at::IntArrayRef sizes, at::TensorOptions where) {
  for (auto* state : {&mean_, &m2_}) *state = at::zeros(sizes, where.dtype(at::kDouble));
  if (order_ == 2) return;
  for (auto* state : {&m3_, &m4_}) *state = at::zeros(sizes, where.dtype(at::kDouble));
}

/// A sample that is one row like those before, with the kernels; else false.
bool Moments::fold_elementwise(const Pass& pass, const detail::Rows& rows) {
  if (!rows.single || count() == 0 || intake_.omits()) return false;
  const auto number = static_cast<double>(count() + 1);
  const auto& sample = detail::parts_of(pass).sample;
  if (order_ == 2) return sample.add_to_moments(number, {&*mean_, &*m2_});
  return m3_ && sample.add_to_moments(number, {&*mean_, &*m2_, &*m3_, &*m4_});
}

/// The moments of rows by operations of ATen.
Moments::Part Moments::part_of(const detail::Rows& rows) const {
  const auto dtype = detail::wide_type(rows.view.scalar_type());
  const at::Tensor x = rows.filled(0.0).to(dtype);
  Part part;
  part.n = rows.finite.defined()
               ? rows.sum(rows.finite, at::kDouble)
               : at::scalar_tensor(static_cast<double>(rows.count), at::TensorOptions().dtype(at::kDouble));
  if (rows.count == 1) {
    const at::Tensor row = x.reshape(rows.kept());
    // States of large samples lie in memory as the first one does, so that the kernels read both straight on.
    const bool as_it_lies = count() == 0 && rows.single && !intake_.omits() && row.numel() > detail::kSmall;
    part.mean = as_it_lies ? at::empty_like(row).copy_(row) : detail::own_copy(row);
    return part;
  }
  part.mean = rows.sum(x, dtype).div(rows.finite.defined() ? part.n.clamp_min(1) : part.n);
  at::Tensor deviation = at::sub(x, part.mean);
  if (rows.finite.defined()) deviation.masked_fill_(rows.finite.logical_not(), 0.0);
  const at::Tensor square = squared(deviation);
  part.m2 = rows.sum(square, at::kDouble);
  if (dtype == at::kDouble && order_ == 4) {
    part.m3 = rows.sum(deviation.mul_(square), at::kDouble);
    part.m4 = rows.sum(square.square(), at::kDouble);
  }
  return part;
}

/// Folds rows on a device where there are kernels for them; else false.
bool Moments::fold_on_device(const detail::Rows& rows) {
  auto* const kernels = detail::kernels_for(rows);
  if (kernels == nullptr) return false;
  if (count() == 0) start(rows.kept(), rows.view.options());
  order_states();
  kernels->fold_moments(detail::device_rows(rows), count(), {*mean_, *m2_, *m3_, *m4_});
  return true;
}

/// Merges the summary of each element into the state.
bool Moments::combine_summaries(c10::ArrayRef<Summary> kept) {
  double* const mean = mean_->data_ptr<double>();
  double* const m2 = m2_->data_ptr<double>();
  double* const m3 = m3_ ? m3_->data_ptr<double>() : nullptr;
  double* const m4 = m4_ ? m4_->data_ptr<double>() : nullptr;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Summary& other = kept[i];
    Summary mine;
    mine.mean = mean[i] + other.with_non_finite(0.0);
    mine.m2 = mine.m3 = mine.m4 = kNaN;
    if (intake_.omits() || std::isfinite(mine.mean)) {
      mine.taken = static_cast<std::int64_t>(intake_.taken_at(i));
      mine.mean = mean[i];
      mine.m2 = m2[i];
      mine.m3 = m3 == nullptr ? 0.0 : m3[i];
      mine.m4 = m4 == nullptr ? 0.0 : m4[i];
      mine.merge(other);
    }
    mean[i] = mine.mean;
    m2[i] = mine.m2;
    if (m3 != nullptr) {
      m3[i] = mine.m3;
      m4[i] = mine.m4;
    }
  }
  return true;
}

Moments::Part Moments::part() const {
  const auto ordered = [](const detail::Owned& state) { return state ? state->contiguous() : *state; };
  return {intake_.taken(), ordered(mean_), ordered(m2_), ordered(m3_), ordered(m4_)};
}

Moments::Part Moments::combined(const Part& mine, const Part& other) {
  const at::Tensor& na = mine.n;
  const at::Tensor& nb = other.n;
  const at::Tensor n = at::add(na, nb).clamp_min_(1);  // where both are 0, every term below is 0
  const at::Tensor fa = at::div(na, n);
  const at::Tensor fb = at::div(nb, n);
  const at::Tensor delta = at::sub(other.mean, mine.mean);
  // Keep an infinite mean as torch computes it; the difference of two would be NaN.
  const at::Tensor total = at::add(mine.mean, other.mean);
  const at::Tensor mean = at::where(total.isfinite(), at::add(mine.mean, at::mul(delta, fb)), total);
  const at::Tensor square = squared(delta);
  at::Tensor m2 = at::add(mine.m2, at::mul(square, at::mul(fa, nb)));
  at::Tensor m3, m4;
  if (mine.m3.defined()) {
    const at::Tensor both = at::mul(fa, fb);
    const at::Tensor cube = at::mul(square, delta);
    m3 = at::add(mine.m3, at::mul(cube, at::mul(both, at::sub(na, nb))));
    m3.sub_(at::mul(at::mul(delta, fb), mine.m2), 3);
    const at::Tensor spread = at::add(at::mul(fa, at::sub(na, nb)), at::mul(fb, nb));
    m4 = at::add(mine.m4, at::mul(at::mul(square, square), at::mul(both, spread)));
    m4.add_(at::mul(at::mul(square, fb.square()), mine.m2), 6);
    m4.sub_(at::mul(at::mul(delta, fb), mine.m3), 4);
    if (other.m2.defined()) {
      m3.add_(other.m3).add_(at::mul(at::mul(delta, fa), other.m2), 3);
      m4.add_(other.m4).add_(at::mul(at::mul(square, fa.square()), other.m2), 6);
      m4.add_(at::mul(at::mul(delta, fa), other.m3), 4);
    }
  }
  if (other.m2.defined()) m2.add_(other.m2);
  return {n, mean, m2, m3, m4};
}

namespace {

bool is_plain(const at::Tensor& tensor, std::int64_t numel) {
  return !tensor.defined() || (tensor.device().is_cpu() && tensor.scalar_type() == at::kDouble &&
                               tensor.is_contiguous() && tensor.numel() == numel);
}

/// Numbers of a state in memory: one for each element, or one for all.
class Numbers {
 public:
  Numbers(const at::Tensor& tensor, bool each)
      : data_(tensor.defined() ? tensor.data_ptr<double>() : &kZero), each_(tensor.defined() && each) {}
  double operator[](std::int64_t i) const { return data_[each_ ? i : 0]; }

 private:
  static constexpr double kZero = 0.0;
  const double* data_;
  bool each_;
};

}  // namespace

/// Computes as `combined` does, in one pass over real numbers on the CPU. False, and nothing done, if they
/// are others.
bool Moments::combine_plain(const Part& other) {
  const Part mine = part();
  const std::int64_t numel = mine.mean.numel();
  for (const Part* one : {&mine, &other}) {
    for (const at::Tensor* tensor : {&one->mean, &one->m2, &one->m3, &one->m4}) {
      if (!is_plain(*tensor, numel)) return false;
    }
    if (!is_plain(one->n, one->n.dim() == 0 ? 1 : numel)) return false;
  }
  const Numbers numbers(mine.n, mine.n.dim() != 0), others(other.n, other.n.dim() != 0),
      means(other.mean, true), second(other.m2, true), third(other.m3, true), fourth(other.m4, true);
  double* const mean = mean_->data_ptr<double>();
  double* const m2 = m2_->data_ptr<double>();
  double* const m3 = m3_ ? m3_->data_ptr<double>() : nullptr;
  double* const m4 = m4_ ? m4_->data_ptr<double>() : nullptr;
  for (std::int64_t i = 0; i < numel; ++i) {
    const double na = numbers[i], nb = others[i];
    const double n = std::max(na + nb, 1.0);  // where both are 0, every term below is 0
    const double fa = na / n, fb = nb / n, both = fa * fb;
    const double delta = means[i] - mean[i], square = delta * delta, b2 = second[i], a2 = m2[i];
    if (m3 != nullptr) {
      const double a3 = m3[i], b3 = third[i], da = delta * fa, db = delta * fb;
      m3[i] = a3 + square * delta * (both * (na - nb)) - 3 * (db * a2) + b3 + 3 * (da * b2);
      m4[i] = m4[i] + square * square * (both * (fa * (na - nb) + fb * nb)) + 6 * (square * (fb * fb) * a2) -
              4 * (db * a3) + fourth[i] + 6 * (square * (fa * fa) * b2) + 4 * (da * b3);
    }
    m2[i] = a2 + square * (fa * nb) + b2;
    // Keep an infinite mean as torch computes it; the difference of two would be NaN.
    const double total = mean[i] + means[i];
    mean[i] = std::isfinite(total) ? mean[i] + delta * fb : total;
  }
  return true;
}

/// Without samples the moments become those of `other`.
void Moments::combine(const Part& other) {
  if (count() == 0) {
    const auto or_zeros = [&](const at::Tensor& sum) {
      return sum.defined() ? sum : at::zeros_like(other.mean, at::kDouble);
    };
    mean_ = other.mean;
    m2_ = or_zeros(other.m2);
    if (order_ == 2 || other.mean.is_complex()) return;
    m3_ = or_zeros(other.m3);
    m4_ = or_zeros(other.m4);
    return;
  }
  order_states();
  if (combine_plain(other)) return;
  const Part result = combined(part(), other);
  mean_ = result.mean;
  m2_ = result.m2;
  if (result.m3.defined()) {
    m3_ = result.m3;
    m4_ = result.m4;
  }
}

void Moments::merge(const Moments& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  TORCH_CHECK_VALUE(mean_->is_complex() == other.mean_->is_complex(),
                    "reductions::Moments::merge: cannot merge ", other.describe(), " of dtype ",
                    other.intake_.dtype(), " into ", describe(), " of dtype ", intake_.dtype(),
                    ": complex numbers have no skewness and kurtosis.");
  Part part = other.part();
  const auto device = mean_->device();
  for (auto* tensor : {&part.mean, &part.m2, &part.m3, &part.m4}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  if (part.n.dim() != 0) part.n = part.n.to(device);
  combine(part);
  intake_.merge(other.intake_);
}

at::Tensor Moments::mean() const {
  intake_.require_samples("mean");
  const base::RecordingMode quiet;
  if (!intake_.omits()) return detail::own_copy(*mean_);
  return mean_->masked_fill(at::eq(intake_.taken(), 0), kNaN);
}

at::Tensor Moments::variance() const {
  intake_.require_samples("variance");
  const base::RecordingMode quiet;
  const at::Tensor n = intake_.taken();
  const at::Tensor result = at::div(m2_->contiguous(), unbiased_ ? at::sub(n, 1).clamp_min_(0) : n);
  return result.masked_fill_(mean_->isfinite().logical_not(), kNaN);
}

at::Tensor Moments::skewness() const {
  intake_.require_samples("skewness");
  require_real("skewness");
  const base::RecordingMode quiet;
  const at::Tensor n = intake_.taken();
  const at::Tensor result = at::div(at::mul(m3_->contiguous(), n.sqrt()), m2_->pow(1.5));
  return result.masked_fill_(mean_->isfinite().logical_not(), kNaN);
}

at::Tensor Moments::kurtosis() const {
  intake_.require_samples("kurtosis");
  require_real("kurtosis");
  const base::RecordingMode quiet;
  const at::Tensor n = intake_.taken();
  const at::Tensor result = at::div(at::mul(m4_->contiguous(), n), m2_->square()).sub_(3);
  return result.masked_fill_(mean_->isfinite().logical_not(), kNaN);
}

core::Results Moments::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  core::Results state{{"mean", mean()}, {"variance", variance()}};
  if (m3_) {
    state.set("skewness", skewness());
    state.set("kurtosis", kurtosis());
  }
  return intake_.with_omitted(std::move(state));
}

std::string Moments::describe() const {
  std::string arguments = unbiased_ ? "" : "biased";
  if (order_ != 4) arguments += c10::str(arguments.empty() ? "" : ", ", "order=", order_);
  return intake_.describe(arguments);
}

Moments Moments::fresh() const {
  Moments fresh;
  fresh.intake_ = intake_.fresh();
  fresh.unbiased_ = unbiased_;
  fresh.order_ = order_;
  return fresh;
}

void Moments::require_real(const char* what) const {
  TORCH_CHECK_VALUE(order_ == 4, "reductions::Moments::", what, ": ", describe(),
                    " keeps the mean and the variance only; make it with MomentsOptions().order(4).");
  TORCH_CHECK_TYPE(bool(m3_), "reductions::Moments::", what, ": not defined for complex samples (dtype ",
                   intake_.dtype(), "); map them to abs() or at::view_as_real() first.");
}

void Moments::restored() const {
  intake_.check_restored(is_order(order_));
  intake_.check_restored(*mean_);
  intake_.check_restored(*m2_);
  if (count() != 0 && !mean_->is_complex() && order_ == 4) {
    intake_.check_restored(*m3_);
    intake_.check_restored(*m4_);
  }
}

}  // namespace torchtap::reductions
