#pragma once

#include <string>

#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `FirstOptions().over({0})`.
class TORCHTAP_API FirstOptions : public RowOptions<FirstOptions> {};
/// `LastOptions().over({0})`.
class TORCHTAP_API LastOptions : public RowOptions<LastOptions> {};

/// The first sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
///
/// Later samples are checked and counted, but their elements are not read.
class TORCHTAP_API First {
 public:
  explicit First(FirstOptions options = {});

  /// Keeps a copy of the first sample. Throws `c10::ValueError` if the shape or device differs,
  /// `c10::TypeError` on quantized or sparse tensors. The state is unchanged if it throws.
  void update(const at::Tensor& sample);
  /// Throws whatever `update` would throw for this sample, without changing the state.
  void check(const at::Tensor& sample) const;
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const First& other);
  /// Replaces the state: `value` becomes the first sample.
  void assign(const at::Tensor& value);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The first sample, a copy. Throws `c10::ValueError` if there are none.
  at::Tensor value() const;
  /// "value".
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// Recipe for `restore`.
  std::string recipe() const { return intake_.name(); }
  First fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }

 private:
  detail::Intake intake_;
  detail::Owned value_;
};

/// The last sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
class TORCHTAP_API Last {
 public:
  explicit Last(LastOptions options = {});

  /// Keeps a copy of the sample. Throws as `First::update`, leaving the state unchanged.
  void update(const at::Tensor& sample);
  /// Throws whatever `update` would throw for this sample, without changing the state.
  void check(const at::Tensor& sample) const;
  /// As `First::merge`.
  void merge(const Last& other);
  /// Replaces the state: `value` becomes the last sample.
  void assign(const at::Tensor& value);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The last sample, a copy. Throws `c10::ValueError` if there are none.
  at::Tensor value() const;
  /// "value".
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// Recipe for `restore`.
  std::string recipe() const { return intake_.name(); }
  Last fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }

 private:
  detail::Intake intake_;
  detail::Owned value_;
};

}  // namespace torchtap::reductions
