#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/reductions/options.hpp>
#include <utility>
#include <vector>

/// What every reduction does with a sample before the mathematics starts: check it, find its rows, count
/// them.
namespace torchtap::reductions::detail {

class Scan;
struct Summary;

/// A tensor that is copied by value, so that a class made of them is a regular value with nothing written by
/// hand. The tensor handed to the constructor must have no other owner.
class Owned {
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

/// A contiguous tensor of `dtype` with the values of `tensor` and a storage of its own.
at::Tensor own_copy(const at::Tensor& tensor, c10::ScalarType dtype);
at::Tensor own_copy(const at::Tensor& tensor);

/// What sums of `dtype` are kept in: half types in float32, integers and bool in int64.
c10::ScalarType sum_type(c10::ScalarType dtype);
/// float64 or complex128.
c10::ScalarType wide_type(c10::ScalarType dtype);
/// What averages of `dtype` are reported in: float32 for the half types and itself, float64 for integers.
c10::ScalarType mean_type(c10::ScalarType dtype);
/// `dtype`, or float32 for the half types, which many CPU kernels lack.
c10::ScalarType kernel_type(c10::ScalarType dtype);

/// The shortest decimal that reads back as `value`: "0.9", for descriptions.
std::string to_text(double value);

/// One sample as rows.
struct Rows {
  at::Tensor view;                   ///< [folded..., kept...], at least one folded dimension
  std::vector<std::int64_t> folded;  ///< 0, 1, ...: the folded dimensions of `view`
  std::int64_t count = 0;            ///< rows
  bool single = false;               ///< elementwise: the sample itself is the one row
  at::Tensor finite;                 ///< like `view`: what to take; undefined if everything
  at::Tensor omitted;                ///< [kept...], int64: elements left out; undefined if nothing can be

  at::IntArrayRef kept() const { return view.sizes().slice(folded.size()); }
  /// The sum over the rows of a tensor shaped like `view`; may share its storage.
  at::Tensor sum(const at::Tensor& values, c10::ScalarType dtype) const;
  /// A tensor shaped like `view` as [rows, elements of a row].
  at::Tensor flat(const at::Tensor& values) const;
  /// `view` with `fill` in place of what is omitted.
  at::Tensor filled(double fill) const;
};

enum class Accepts { any, real };

/// Checks samples, finds their rows, counts them. Holds all that is alike in every reduction.
class Intake {
 public:
  Intake(const char* name, Folding folding, Accepts accepts = Accepts::any, bool any_shape = false);

  /// The rows of `sample`. Throws `c10::TypeError` or `c10::ValueError` if it does not fit; changes nothing.
  Rows open(const at::Tensor& sample) const;
  /// The same without looking for non-finite elements where the scan has counted them: then without `finite`.
  Rows open(const Scan& scan) const;
  /// Counts what `open` returned.
  void commit(const Rows& rows);
  /// Counts one sample that is known to fit.
  void count_one() noexcept { ++count_; }

  /// Throws `c10::ValueError` if the two differ in configuration, given as text, or in shape.
  void check_merge(const Intake& other, const std::string& mine, const std::string& theirs) const;
  /// Adds what `other` counted; call after `check_merge`.
  void merge(const Intake& other);
  /// For `assign`: `value` stands for all samples so far, or for one if there were none.
  void check_assign(const at::Tensor& value) const;
  void assign(const at::Tensor& value);
  /// The same configuration with no samples.
  Intake fresh() const;

  bool plain() const noexcept { return plain_; }  ///< elementwise, and non-finite elements propagate
  std::int64_t count() const noexcept { return count_; }
  at::IntArrayRef kept() const noexcept { return kept_; }
  std::int64_t kept_numel() const noexcept;
  c10::ScalarType dtype() const noexcept { return dtype_; }  ///< of all samples so far, promoted
  const at::Device& device() const noexcept { return device_; }
  const Folding& folding() const noexcept { return folding_; }
  bool omits() const noexcept { return folding_.non_finite == NonFinite::omit; }

  /// Throws `c10::ValueError` if there are no samples; `what` names the result asked for.
  void require_samples(const char* what) const;
  /// [kept...], int64, a copy.
  at::Tensor omitted() const;
  /// Elements taken, float64: [kept...] under `omit`, else a number without dimensions on the CPU.
  at::Tensor taken() const;
  /// `state` with "omitted" under that policy.
  core::Results with_omitted(core::Results state) const;
  const char* name() const noexcept { return name_; }
  /// "Sum(over=[0])", with `arguments` first.
  std::string describe(const std::string& arguments = {}) const;
  /// Throws `c10::ValueError` unless `fits`: an archive's claims are checked.
  void check_restored(bool fits) const;
  /// As above: `tensor` has the shape `front` + kept, or is undefined while there are no samples.
  void check_restored(const at::Tensor& tensor, std::initializer_list<std::int64_t> front = {}) const;

  template <class Archive>
  void serialize(Archive& archive) {
    auto dtype = static_cast<std::int32_t>(dtype_);
    auto type = static_cast<std::int32_t>(device_.type());
    auto index = static_cast<std::int32_t>(device_.index());
    archive(folding_, count_, shaped_, kept_, dtype, type, index, omitted_);
    if constexpr (Archive::is_loading::value) restored(dtype, type, index);
  }

 private:
  Rows rows(const at::Tensor& sample) const;
  void raise(const at::Tensor& sample, std::int64_t nan, std::int64_t infinities) const;
  void restored(std::int32_t dtype, std::int32_t type, std::int32_t index);

  const char* name_;
  Folding folding_;
  Accepts accepts_;
  bool any_shape_;
  bool plain_;
  bool shaped_ = false;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> kept_;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  at::Device device_{at::kCPU};
  Owned omitted_;
};

/// Adds a small contiguous CPU `sample` to `sum` of the same shape by a plain loop, some ten times faster
/// than the dispatcher; false, and nothing done, if that does not apply. `sum` is of the sample's dtype or
/// float64.
bool add_plain(at::Tensor& sum, const at::Tensor& sample);

}  // namespace torchtap::reductions::detail
