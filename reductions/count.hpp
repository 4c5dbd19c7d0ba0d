#pragma once

#include <string>

#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `CountOptions().over({0})`.
class TORCHTAP_API CountOptions : public RowOptions<CountOptions> {};

/// Counts rows, elements, NaN, infinities and zeros over all samples.
///
/// Samples are `[...]` of any shape and any plain dtype. Their shapes may differ, since nothing is kept per
/// element. Counts stay on the device of the first sample.
class TORCHTAP_API Count {
 public:
  explicit Count(CountOptions options = {});

  /// Counts a sample. Throws `c10::ValueError` if the device differs, `c10::TypeError` on quantized or sparse
  /// tensors. The state is unchanged if it throws.
  void update(const at::Tensor& sample);
  /// Throws whatever `update` would throw for this sample, without changing the state.
  void check(const at::Tensor& sample) const;
  /// The steps of an update that shares one pass over the sample with other reductions; see `Series::update`.
  void ask(detail::Scan& scan) const;
  void check(const detail::Scan& scan) const;
  void update(const detail::Scan& scan);
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration differs, leaving the state unchanged.
  void merge(const Count& other);

  /// Number of samples, or of rows under `over(dims)`; the same as `rows()`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// Samples, or rows under `over(dims)`.
  std::int64_t rows() const noexcept { return intake_.count(); }
  /// Number of elements over all samples.
  std::int64_t elements() const noexcept { return elements_; }
  /// `nan`, `inf` and `zeros` are int64 tensors without dimensions on the samples' device, 0 if there are no
  /// samples. A complex number counts as NaN or infinite if either part is.
  at::Tensor nan() const;
  /// Number of infinite elements.
  at::Tensor inf() const;
  /// Number of zeros.
  at::Tensor zeros() const;
  /// "rows", "elements", "nan", "inf" and "zeros": int64 tensors without dimensions.
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// Recipe for `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }
  Count fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, elements_, nan_, inf_, zeros_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  void restored() const;

  detail::Intake intake_;
  std::int64_t elements_ = 0;
  detail::Owned nan_, inf_, zeros_;
};

}  // namespace torchtap::reductions
