#pragma once

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `CountOptions().over({0})`.
class TORCHTAP_API CountOptions : public RowOptions<CountOptions> {};

/// Counts rows, elements, NaN, infinities and zeros over everything it sees.
///
/// Samples are `[...]` of any shape, any plain dtype; they may differ in shape, since nothing elementwise is
/// kept. Counts stay on the device of the first sample.
class TORCHTAP_API Count {
 public:
  explicit Count(CountOptions options = {});

  /// Counts a sample. Throws `c10::ValueError` on another device, `c10::TypeError` on quantized or sparse
  /// tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// The three steps of an update that shares its pass over the sample, as those of a `Series` do.
  void ask(detail::Scan& scan) const;
  void check(const detail::Scan& scan) const;
  void update(const detail::Scan& scan);
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration; the state is then unchanged.
  void merge(const Count& other);

  /// Samples, or rows under `over(dims)`; the same as `rows()`.
  std::int64_t count() const noexcept { return intake_.count(); }
  std::int64_t rows() const noexcept { return intake_.count(); }
  std::int64_t elements() const noexcept { return elements_; }
  /// These three are int64 tensors without dimensions on the samples' device, 0 if there are no samples; a
  /// complex number counts as NaN or infinite if a part of it is.
  at::Tensor nan() const;
  at::Tensor inf() const;
  at::Tensor zeros() const;
  /// "rows", "elements", "nan", "inf" and "zeros": int64 tensors without dimensions.
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
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
