#pragma once

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `FirstOptions().over({0})`.
class TORCHTAP_API FirstOptions : public RowOptions<FirstOptions> {};
/// `LastOptions().over({0})`.
class TORCHTAP_API LastOptions : public RowOptions<LastOptions> {};

/// The first sample, or row under `over(dims)`, as it came: its dtype, NaN included.
///
/// Later samples are checked and counted, and nothing of them is read.
class TORCHTAP_API First {
 public:
  explicit First(FirstOptions options = {});

  /// Keeps a copy of the first sample. Throws `c10::ValueError` on another shape or device, `c10::TypeError`
  /// on quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const First& other);
  /// Goes on with `value` as the first sample.
  void assign(const at::Tensor& value);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The first sample, a copy. Throws `c10::ValueError` if there are none.
  at::Tensor value() const;
  /// "value".
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
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

/// The last sample, or row under `over(dims)`, as it came: its dtype, NaN included.
class TORCHTAP_API Last {
 public:
  explicit Last(LastOptions options = {});

  /// Keeps a copy of the sample. Throws as `First::update`; the state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// As `First::merge`.
  void merge(const Last& other);
  /// Goes on with `value` as the last sample.
  void assign(const at::Tensor& value);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The last sample, a copy. Throws `c10::ValueError` if there are none.
  at::Tensor value() const;
  /// "value".
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
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
