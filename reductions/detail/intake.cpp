// Checks samples, finds their rows and counts them.

#include <ATen/Functions.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <numeric>

#include <torchtap/base/numbers.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions::detail {
namespace {

/// Compares few sizes without a call.
C10_ALWAYS_INLINE bool are_same(at::IntArrayRef a, at::IntArrayRef b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

const char* to_text(NonFinite policy) {
  switch (policy) {
    case NonFinite::propagate:
      return "propagate";
    case NonFinite::omit:
      return "omit";
    case NonFinite::raise:
      return "raise";
  }
  return "?";
}

bool has_non_finite(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) || c10::isComplexType(dtype);
}

}  // namespace

at::Tensor Owned::copied(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const base::RecordingMode quiet;
  return own_copy(tensor);
}

at::Tensor own_copy(const at::Tensor& tensor, c10::ScalarType dtype) {
  // copy_ rather than clone(): it resolves conjugate and negative views and never keeps unusual strides.
  return at::empty(tensor.sizes(), at::TensorOptions().dtype(dtype).device(tensor.device())).copy_(tensor);
}

at::Tensor own_copy(const at::Tensor& tensor) {
  return own_copy(tensor, tensor.scalar_type());
}

at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype));
}

c10::ScalarType sum_type(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/true) ? at::kLong : kernel_type(dtype);
}

c10::ScalarType wide_type(c10::ScalarType dtype) {
  return c10::isComplexType(dtype) ? at::kComplexDouble : at::kDouble;
}

c10::ScalarType mean_type(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/true) ? at::kDouble : kernel_type(dtype);
}

c10::ScalarType kernel_type(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::ComplexHalf) return at::kComplexFloat;
  if (c10::isFloatingType(dtype) && c10::elementSize(dtype) < 4) return at::kFloat;
  return dtype;
}

std::string to_text(double value) {
  std::string text;
  for (int digits = 6; digits <= 17; ++digits) {
    text = base::number_text(value, digits);
    if (base::number_of(text) == value) break;
  }
  return text;
}

at::Tensor Rows::sum(const at::Tensor& values, c10::ScalarType dtype) const {
  if (count == 1) return values.reshape(kept()).to(dtype);
  return at::sum(values, folded, /*keepdim=*/false, dtype);
}

at::Tensor Rows::flat(const at::Tensor& values) const {
  std::int64_t numel = 1;
  for (const auto size : kept()) numel *= size;
  return values.reshape({count, numel});
}

at::Tensor Rows::filled(double fill) const {
  return finite.defined() ? view.masked_fill(finite.logical_not(), fill) : view;
}

Intake::Intake(const char* name, Folding folding, Accepts accepts, bool any_shape)
    : name_(name), folding_(std::move(folding)), accepts_(accepts), any_shape_(any_shape) {
  TORCH_CHECK_VALUE(folding_.over.empty() || !folding_.over_all, name_, ": over(",
                    at::IntArrayRef(folding_.over),
                    ") and over_all(true) were both given; choose one of them.");
}

void Intake::unfit_shape(const at::Tensor& sample, at::IntArrayRef kept) const {
  core::unfit<c10::ValueError>(c10::str("reductions::", name_, "::update: a sample of shape ", sample.sizes(),
                                        kept == sample.sizes() ? "" : c10::str(" (rows of shape ", kept, ")"),
                                        " does not match the shape ", at::IntArrayRef(kept_),
                                        " fixed by the first sample (", count_, " so far). Use one ", name_,
                                        " per shape, or fold what varies with over(dims)."));
}

void Intake::expect_numbers(const at::Tensor& sample) const {
  TORCH_CHECK_TYPE(sample.defined(), "reductions::", name_,
                   "::update: expected a tensor, got an undefined one.");
  if (!base::is_strided(sample)) {
    core::unfit<c10::TypeError>(c10::str("reductions::", name_, "::update: expected a strided tensor, got ",
                                         base::instead_of_strided(sample), "."));
  }
  const auto dtype = sample.scalar_type();
  TORCH_CHECK_TYPE(!sample.is_quantized(), "reductions::", name_,
                   "::update: expected plain numbers, got dtype ", dtype,
                   "; convert it with dequantize() or int_repr() first.");
  TORCH_CHECK_TYPE(accepts_ != Accepts::real || !c10::isComplexType(dtype), "reductions::", name_,
                   "::update: expected real numbers, got dtype ", dtype,
                   ", which has no order; map it to abs(), at::real() or at::view_as_real() first.");
  TORCH_CHECK_VALUE(
      accepts_ != Accepts::one_kind || count_ == 0 || c10::isComplexType(dtype) == c10::isComplexType(dtype_),
      "reductions::", name_, "::update: a sample of dtype ", dtype, " does not match ", count_,
      " samples of dtype ", dtype_, ": one is of real, one of complex numbers. Use one ", name_,
      " for each.");
}

Rows Intake::rows(const at::Tensor& sample) const {
  expect_numbers(sample);
  Rows rows;
  const std::int64_t dim = sample.dim();
  std::vector<char> is_folded(static_cast<std::size_t>(dim), folding_.over_all ? 1 : 0);
  for (const auto over : folding_.over) {
    const bool found = -dim <= over && over < dim;
    if (!found && shaped_) unfit_shape(sample, sample.sizes());
    TORCH_CHECK_VALUE(found, "reductions::", name_, "::update: over(", at::IntArrayRef(folding_.over),
                      ") needs a dimension ", over, ", the sample has shape ", sample.sizes(),
                      "; record a tensor with that dimension, or fold others.");
    auto& seen = is_folded[static_cast<std::size_t>(over < 0 ? over + dim : over)];
    TORCH_CHECK_VALUE(seen == 0, "reductions::", name_, "::update: over(", at::IntArrayRef(folding_.over),
                      ") names one dimension twice for a sample of shape ", sample.sizes(),
                      "; name each once.");
    seen = 1;
  }
  std::vector<std::int64_t> order;
  for (const char wanted : {1, 0}) {
    for (std::int64_t i = 0; i < dim; ++i) {
      if (is_folded[static_cast<std::size_t>(i)] == wanted) order.push_back(i);
    }
  }
  const auto folded = static_cast<std::size_t>(std::count(is_folded.begin(), is_folded.end(), 1));
  // LibTorch's wheel (2.11) converts float16 to float32 without the sign of a negative view.
  const at::Tensor plain = sample.is_neg() ? sample.resolve_neg() : sample;
  if (folded == 0) {
    rows.view = plain.unsqueeze(0);
    rows.single = true;
  } else {
    rows.view = std::is_sorted(order.begin(), order.end()) ? plain : plain.permute(order);
  }
  rows.folded.resize(std::max<std::size_t>(folded, 1));
  std::iota(rows.folded.begin(), rows.folded.end(), 0);
  rows.count = 1;
  for (std::size_t i = 0; i < rows.folded.size(); ++i)
    rows.count *= rows.view.size(static_cast<std::int64_t>(i));

  if (shaped_) {
    if (!any_shape_ && rows.kept() != at::IntArrayRef(kept_)) unfit_shape(sample, rows.kept());
    if (sample.device() != device_) {
      core::unfit<c10::ValueError>(c10::str("reductions::", name_, "::update: a sample on ", sample.device(),
                                            " does not match the state on ", device_,
                                            "; move the sample there first."));
    }
  }
  return rows;
}

Rows Intake::open(const at::Tensor& sample) const {
  Rows rows = this->rows(sample);
  if (rows.count == 0 || folding_.non_finite == NonFinite::propagate || !has_non_finite(sample.scalar_type()))
    return rows;
  const at::Tensor finite = at::isfinite(rows.view);
  if (folding_.non_finite == NonFinite::omit) {
    rows.finite = finite;
    rows.omitted = rows.sum(finite.logical_not(), at::kLong);
  } else if (!finite.all().item<bool>()) {
    const auto nan = at::isnan(rows.view).sum().item<std::int64_t>();
    raise(sample, nan, finite.logical_not().sum().item<std::int64_t>() - nan);
  }
  return rows;
}

Rows Intake::open(const at::Tensor& sample, c10::ArrayRef<Summary> kept) const {
  if (kept.empty()) return open(sample);
  Rows rows = this->rows(sample);
  if (folding_.non_finite == NonFinite::omit) {
    rows.omitted = tabulate(rows.kept(), kept, [](const Summary& one) { return one.non_finite(); });
  } else if (folding_.non_finite == NonFinite::raise) {
    Summary total;
    for (const auto& one : kept) total.merge(one);
    if (total.non_finite() != 0) raise(sample, total.nan, total.infinities());
  }
  return rows;
}

/// The layout of the rows of a sample that resembles the samples before.
struct Intake::Form {
  std::int64_t rows = 1, numel = 1;  // of each row
  bool split = false;                // a row is not one piece of memory
};

/// Compiled into its callers: handing the form over in memory takes as long as finding it.
C10_ALWAYS_INLINE bool Intake::find_form(const Pass& pass, Form& form) const {
  const Readable& sample = parts_of(pass).sample;
  if (!shaped_ || sample.type() != dtype_ || !device_.is_cpu() || folding_.non_finite != NonFinite::propagate)
    return false;
  if (folding_.over_all) {
    form.rows = sample.numel();
    return true;
  }
  const auto sizes = sample.sizes();
  if (folding_.over.empty()) {  // elementwise
    form.numel = sample.numel();
    return any_shape_ || are_same(sizes, kept_);
  }
  const auto dim = static_cast<std::int64_t>(sizes.size());
  if (dim > 64 || (!any_shape_ && sizes.size() != kept_.size() + folding_.over.size())) return false;
  std::uint64_t folded = 0;
  for (const std::int64_t over : folding_.over) {
    const std::int64_t i = over < 0 ? over + dim : over;
    if (i < 0 || i >= dim || (folded >> i & 1) != 0) return false;
    folded |= std::uint64_t{1} << i;
  }
  std::size_t kept = 0;
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i)];
    if ((folded >> i & 1) == 0) {
      if (!any_shape_ && kept_[kept++] != size) return false;
      form.numel *= size;
    } else if (size != 1) {
      form.split = form.split || form.numel != 1;
      form.rows *= size;
    }
  }
  return true;
}

std::optional<Lines> Intake::lines(const Pass& pass) const {
  constexpr std::int64_t kShort = 16;  // elements: below, many rows are read faster as columns
  const Readable& sample = parts_of(pass).sample;
  Form form;
  if (!sample.small() || folding_.over_all || any_shape_ || !find_form(pass, form) || form.split ||
      (form.rows > 1 && form.numel < kShort))
    return std::nullopt;
  if (const Scattered* const scattered = sample.scattered()) {
    const auto groups = static_cast<std::int64_t>(scattered->rows.size());
    if (form.rows % groups == 0)
      return Lines{sample.type(), scattered->data,        form.rows,
                   form.numel,    scattered->rows.data(), form.rows / groups};
  }
  return Lines{sample.type(), sample.memory()->data, form.rows, form.numel};
}

std::optional<Lines> Intake::lines_alike(const at::Tensor& sample) const {
  if (last_.rows == 0 || !base::is_plain_on_cpu(sample) || sample.scalar_type() != dtype_ ||
      !are_same(sample.sizes(), last_.sizes))
    return std::nullopt;
  return Lines{dtype_, base::bytes_in(sample), last_.rows, last_.numel};
}

void Intake::remember(const Pass& pass) {
  const auto lines = this->lines(pass);
  last_.rows = 0;
  if (!lines || lines->places != nullptr) return;
  const at::IntArrayRef sizes = parts_of(pass).sample.sizes();
  last_.sizes.assign(sizes.begin(), sizes.end());
  last_.rows = lines->rows;
  last_.numel = lines->numel;
}

std::optional<std::int64_t> Intake::fitting_rows(const Pass& pass) const {
  Form form;
  return find_form(pass, form) ? std::optional<std::int64_t>(form.rows) : std::nullopt;
}

bool Intake::knows(const Pass& pass) const {
  return parts_of(pass).sample.small() &&
         (folding_.over_all || any_shape_ ? fitting_rows(pass).has_value() : lines(pass).has_value());
}

double Intake::taken_at(std::size_t element) const {
  const auto omitted = omitted_ ? omitted_->data_ptr<std::int64_t>()[element] : 0;
  return static_cast<double>(count_ - omitted);
}

void Intake::raise(const at::Tensor& sample, std::int64_t nan, std::int64_t infinities) const {
  TORCH_CHECK_VALUE(false, "reductions::", name_, "::update: expected finite numbers, got ", nan, " NaN and ",
                    infinities, " Inf in a sample of shape ", sample.sizes(),
                    "; find their origin, or choose NonFinite::omit or NonFinite::propagate.");
}

void Intake::commit(const Rows& rows) {
  if (!shaped_) {
    kept_ = rows.kept().vec();
    dtype_ = rows.view.scalar_type();
    device_ = rows.view.device();
    shaped_ = true;
  } else if (dtype_ != rows.view.scalar_type()) {
    dtype_ = c10::promoteTypes(dtype_, rows.view.scalar_type());
  }
  if (rows.omitted.defined()) {
    if (omitted_) {
      omitted_->add_(rows.omitted);
    } else {
      omitted_ = own_copy(rows.omitted);
    }
  }
  count_ += rows.count;
}

void Intake::check_merge(const Intake& other, const std::string& mine, const std::string& theirs) const {
  TORCH_CHECK_VALUE(mine == theirs, "reductions::", name_, "::merge: cannot merge ", theirs, " into ", mine,
                    "; both must be configured alike.");
  TORCH_CHECK_VALUE(!shaped_ || !other.shaped_ || any_shape_ || kept_ == other.kept_, "reductions::", name_,
                    "::merge: cannot merge ", theirs, " of shape ", at::IntArrayRef(other.kept_), " into ",
                    mine, " of shape ", at::IntArrayRef(kept_),
                    "; only reductions of samples of one shape can be merged.");
}

void Intake::merge(const Intake& other) {
  if (other.count_ == 0) return;
  if (!shaped_) {
    kept_ = other.kept_;
    dtype_ = other.dtype_;
    device_ = other.device_;
    shaped_ = true;
  } else {
    dtype_ = c10::promoteTypes(dtype_, other.dtype_);
  }
  if (other.omitted_) {
    if (omitted_) {
      omitted_->add_(other.omitted_->to(device_));
    } else {
      omitted_ = other.omitted_;
    }
  }
  count_ += other.count_;
}

void Intake::check_assign(const at::Tensor& value) const {
  TORCH_CHECK_TYPE(value.defined() && value.layout() == c10::kStrided && !value.is_quantized(),
                   "reductions::", name_, "::assign: expected a plain strided tensor; convert it first.");
  TORCH_CHECK_TYPE(accepts_ != Accepts::real || !value.is_complex(), "reductions::", name_,
                   "::assign: expected real numbers, got dtype ", value.scalar_type(), ".");
  TORCH_CHECK_VALUE(!shaped_ || value.sizes() == at::IntArrayRef(kept_), "reductions::", name_,
                    "::assign: a value of shape ", value.sizes(), " does not match the shape ",
                    at::IntArrayRef(kept_), " of ", count_,
                    " samples so far; assign one of that shape, or start from fresh().");
}

void Intake::assign(const at::Tensor& value) {
  if (!shaped_) {
    kept_ = value.sizes().vec();
    shaped_ = true;
    count_ = 1;
  }
  dtype_ = value.scalar_type();
  device_ = value.device();
  last_.rows = 0;
}

Intake Intake::fresh() const {
  return Intake(name_, folding_, accepts_, any_shape_);
}

std::int64_t Intake::kept_numel() const noexcept {
  std::int64_t numel = 1;
  for (const auto size : kept_) numel *= size;
  return numel;
}

void Intake::require_samples(const char* what) const {
  TORCH_CHECK_VALUE(count_ != 0, "reductions::", name_, "::", what,
                    ": there are no samples yet; call update first, or check count().");
}

at::Tensor Intake::omitted() const {
  require_samples("omitted");
  const base::RecordingMode quiet;
  if (omitted_) return own_copy(*omitted_);
  return at::zeros(kept_, at::TensorOptions().dtype(at::kLong).device(device_));
}

at::Tensor Intake::taken() const {
  if (omitted_) return at::rsub(omitted_->to(at::kDouble), static_cast<double>(count_));
  return at::scalar_tensor(static_cast<double>(count_), at::TensorOptions().dtype(at::kDouble));
}

core::Results Intake::with_omitted(core::Results state) const {
  if (omits()) state.set("omitted", omitted());
  return state;
}

std::string Intake::describe(const std::string& arguments) const {
  std::string inside = arguments;
  const auto append = [&inside](const std::string& text) { inside += (inside.empty() ? "" : ", ") + text; };
  if (!folding_.over.empty()) append(c10::str("over=", at::IntArrayRef(folding_.over)));
  if (folding_.over_all) append("over_all");
  if (folding_.non_finite != NonFinite::propagate)
    append(c10::str("non_finite=", to_text(folding_.non_finite)));
  return inside.empty() ? std::string(name_) : c10::str(name_, "(", inside, ")");
}

void Intake::check_restored(bool fits) const {
  TORCH_CHECK_VALUE(fits, "restore: the parts of the archive of ", describe(),
                    " are inconsistent; it is damaged.");
}

void Intake::check_restored(const at::Tensor& tensor, std::initializer_list<std::int64_t> front) const {
  if (count_ == 0) return check_restored(!tensor.defined());
  std::vector<std::int64_t> sizes(front);
  sizes.insert(sizes.end(), kept_.begin(), kept_.end());
  check_restored(tensor.defined() && tensor.sizes() == at::IntArrayRef(sizes));
}

void Intake::restored(std::int32_t dtype) {
  check_restored(count_ >= 0 && (count_ == 0 || shaped_) && folding_.non_finite >= NonFinite::propagate &&
                 folding_.non_finite <= NonFinite::raise && dtype >= 0 &&
                 dtype < static_cast<std::int32_t>(c10::ScalarType::NumOptions) &&
                 (!omitted_ || (shaped_ && (omitted_->sizes() == at::IntArrayRef(kept_)))) &&
                 std::all_of(kept_.begin(), kept_.end(), [](auto size) { return size >= 0; }));
  dtype_ = static_cast<c10::ScalarType>(dtype);
  last_.rows = 0;
}

}  // namespace torchtap::reductions::detail
