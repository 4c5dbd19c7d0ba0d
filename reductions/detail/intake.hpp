#pragma once

/// The intake of a sample, which all reductions share: checks the sample, finds its rows, counts them.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/extend/state_archive.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/reductions/fast/memory.hpp>
#include <torchtap/reductions/options.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions {
class Pass;
}

namespace torchtap::reductions::detail {

/// A tensor that is copied by value, which gives classes made of them correct copy and move operations by
/// default. The tensor passed to the constructor must have no other owner.
class TORCHTAP_API Owned {
 public:
  Owned() = default;
  Owned(at::Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: takes ownership
  Owned(const Owned& other) : tensor_(copied(other.tensor_)) {}
  Owned(Owned&& other) noexcept = default;
  Owned& operator=(Owned other) noexcept {
    tensor_ = std::move(other.tensor_);
    return *this;
  }
  ~Owned() = default;

  explicit operator bool() const noexcept { return tensor_.defined(); }
  at::Tensor& operator*() noexcept { return tensor_; }
  const at::Tensor& operator*() const noexcept { return tensor_; }
  at::Tensor* operator->() noexcept { return &tensor_; }
  const at::Tensor* operator->() const noexcept { return &tensor_; }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(tensor_);
  }

 private:
  static at::Tensor copied(const at::Tensor& tensor);

  at::Tensor tensor_;
};

/// A contiguous tensor of `dtype` with the values of `tensor` and its own storage.
TORCHTAP_API at::Tensor own_copy(const at::Tensor& tensor, c10::ScalarType dtype);
TORCHTAP_API at::Tensor own_copy(const at::Tensor& tensor);

/// The dtype for sums of `dtype`: float32 for half types, int64 for integers and bool.
TORCHTAP_API c10::ScalarType sum_type(c10::ScalarType dtype);
/// float64 or complex128.
TORCHTAP_API c10::ScalarType wide_type(c10::ScalarType dtype);
/// The dtype for averages of `dtype`: float32 for half types and float32, float64 for integers.
TORCHTAP_API c10::ScalarType mean_type(c10::ScalarType dtype);
/// `dtype`, or float32 for the half types, which many CPU kernels lack.
TORCHTAP_API c10::ScalarType kernel_type(c10::ScalarType dtype);

/// An uninitialised CPU tensor.
TORCHTAP_API at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype);

/// `of(summary)` of each kept element, as a tensor of that shape whose dtype is the type returned.
template <class F>
at::Tensor tabulate(at::IntArrayRef kept, c10::ArrayRef<Summary> summaries, const F& of) {
  using T = decltype(of(summaries.front()));
  at::Tensor table = empty(kept, c10::CppTypeToScalarType<T>::value);
  std::transform(summaries.begin(), summaries.end(), table.data_ptr<T>(), of);
  return table;
}

/// The shortest decimal that reads back as `value`, such as "0.9"; for descriptions.
TORCHTAP_API std::string to_text(double value);

/// One sample as rows.
struct TORCHTAP_API Rows {
  at::Tensor view;                   ///< [folded..., kept...], at least one folded dimension
  std::vector<std::int64_t> folded;  ///< 0, 1, ...: the folded dimensions of `view`
  std::int64_t count = 0;            ///< rows
  bool single = false;               ///< elementwise: the sample itself is the one row
  at::Tensor finite;                 ///< shaped like `view`: the elements to take; undefined if all
  at::Tensor omitted;  ///< [kept...], int64: number of elements left out; undefined if none can be left out

  at::IntArrayRef kept() const { return view.sizes().slice(folded.size()); }
  /// Sums `values`, shaped like `view`, over the rows. The result may share its storage.
  at::Tensor sum(const at::Tensor& values, c10::ScalarType dtype) const;
  /// `values`, shaped like `view`, as [rows, elements of a row].
  at::Tensor flat(const at::Tensor& values) const;
  /// `view` with omitted elements replaced by `fill`.
  at::Tensor filled(double fill) const;
};

/// Which numbers a reduction takes: also complex ones; only real ones; or those of one kind, as the first is.
enum class Accepts { any, real, one_kind };

/// Checks samples, finds their rows and counts them. Holds the configuration and counters that all reductions
/// share.
class TORCHTAP_API Intake {
 public:
  Intake(const char* name, Folding folding, Accepts accepts = Accepts::any, bool any_shape = false);

  /// The rows of `sample`. Throws `c10::TypeError` or `c10::ValueError` if it does not fit; changes nothing.
  Rows open(const at::Tensor& sample) const;
  /// As above, but does not search for non-finite elements if `kept`, the summary of each kept element, has
  /// their numbers; `finite` is then undefined.
  Rows open(const at::Tensor& sample, c10::ArrayRef<Summary> kept) const;
  /// The lines of a sample that looks like the last one that was `remember`ed, found without a pass.
  std::optional<Lines> lines_alike(const at::Tensor& sample) const;
  /// Remembers the layout of a small sample that was counted, if its lines are side by side.
  void remember(const Pass& pass);
  /// The rows of a small sample, if it is as those before: elementwise or with leading dimensions folded, of
  /// the same dtype, and with non-finite elements propagated. Otherwise nothing is returned, and `open` has
  /// to look.
  std::optional<Lines> lines(const Pass& pass) const;
  /// Number of rows of a sample on the CPU, if it is of the same dtype and shape as those before, and
  /// non-finite elements are propagated, so that it is known to fit. Otherwise nothing.
  std::optional<std::int64_t> fitting_rows(const Pass& pass) const;
  /// Whether the sample is small and known to fit.
  bool knows(const Pass& pass) const;
  /// Counts the rows of `lines` or `fitting_rows`.
  void count_rows(std::int64_t rows) noexcept { count_ += rows; }
  /// Counts the rows that `open` returned.
  void commit(const Rows& rows);

  /// Throws `c10::ValueError` if the configurations, given as text, or the shapes differ.
  void check_merge(const Intake& other, const std::string& mine, const std::string& theirs) const;
  /// Adds the counts of `other`; call after `check_merge`.
  void merge(const Intake& other);
  /// For `assign`: `value` replaces all samples so far, or counts as one sample if there were none.
  void check_assign(const at::Tensor& value) const;
  void assign(const at::Tensor& value);
  /// The same configuration without samples.
  Intake fresh() const;

  std::int64_t count() const noexcept { return count_; }
  at::IntArrayRef kept() const noexcept { return kept_; }
  std::int64_t kept_numel() const noexcept;
  c10::ScalarType dtype() const noexcept { return dtype_; }  ///< the promoted dtype of all samples so far
  const at::Device& device() const noexcept { return device_; }
  const Folding& folding() const noexcept { return folding_; }
  bool any_shape() const noexcept { return any_shape_; }
  bool omits() const noexcept { return folding_.non_finite == NonFinite::omit; }

  /// Throws `c10::ValueError` if there are no samples; `what` names the result asked for.
  void require_samples(const char* what) const;
  /// [kept...], int64, a copy. Throws `c10::ValueError` if there are no samples.
  at::Tensor omitted() const;
  /// Number of elements taken of each kept one, on the CPU: [kept...] under `omit`, otherwise one number for
  /// all.
  double taken_at(std::size_t element) const;
  /// Number of elements taken, float64: [kept...] under `omit`, otherwise without dimensions on the CPU.
  at::Tensor taken() const;
  /// `state`, plus "omitted" under `NonFinite::omit`.
  core::Results with_omitted(core::Results state) const;
  const char* name() const noexcept { return name_; }
  /// "Sum(over=[0])"; `arguments` come first in the parentheses.
  std::string describe(const std::string& arguments = {}) const;
  /// Throws `c10::ValueError` unless `fits`. Archives are not trusted.
  void check_restored(bool fits) const;
  /// Throws `c10::ValueError` unless `tensor` has the shape `front` + kept, or is undefined while there are
  /// no samples.
  void check_restored(const at::Tensor& tensor, std::initializer_list<std::int64_t> front = {}) const;

  template <class Archive>
  void serialize(Archive& archive) {
    auto dtype = static_cast<std::int32_t>(dtype_);
    auto type = static_cast<std::int32_t>(device_.type());
    auto index = static_cast<std::int32_t>(device_.index());
    archive(folding_, count_, shaped_, kept_, dtype, type, index);
    core::extend::declare_elements(archive, kept_);
    archive(omitted_);
    if constexpr (Archive::is_loading::value) {
      restored(dtype);
      device_ = core::extend::placed(archive, type, index);
    } else if (!any_shape_) {
      core::extend::note_shape(archive, name_, shaped_, kept_);
    }
  }

 private:
  struct Form;
  void expect_numbers(const at::Tensor& sample) const;
  Rows rows(const at::Tensor& sample) const;
  [[noreturn]] void unfit_shape(const at::Tensor& sample, at::IntArrayRef kept) const;
  bool find_form(const Pass& pass, Form& form) const;
  void raise(const at::Tensor& sample, std::int64_t nan, std::int64_t infinities) const;
  void restored(std::int32_t dtype);

  const char* name_;
  Folding folding_;
  Accepts accepts_;
  bool any_shape_;
  bool shaped_ = false;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> kept_;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  at::Device device_{at::kCPU};
  Owned omitted_;
  struct {
    c10::DimVector sizes;
    std::int64_t rows = 0, numel = 0;  // of each row; no rows: there is none
  } last_;                             // the sample that was remembered
};

}  // namespace torchtap::reductions::detail
