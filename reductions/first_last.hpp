#pragma once

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// `FirstOptions().over({0})`.
class TORCHTAP_API FirstOptions : public RowOptions<FirstOptions> {};
/// `LastOptions().over({0})`.
class TORCHTAP_API LastOptions : public RowOptions<LastOptions> {};

/// The first sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
///
/// Later samples are checked and counted, but their elements are not read.
class TORCHTAP_API First : public Reduction {
 public:
  explicit First(FirstOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const First& other);
  /// Replaces the state: `value` becomes the first sample.
  void assign(const at::Tensor& value);

  /// The first sample, a copy. Throws `c10::ValueError` if there are none.
  at::Tensor value() const;
  /// "value".
  core::Results results() const;
  First fresh() const;

 private:
  friend class cereal::access;
  void fold(const Pass& pass) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }

  detail::Owned value_;
};

/// The last sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
class TORCHTAP_API Last : public Reduction {
 public:
  explicit Last(LastOptions options = {});

  /// As `First::merge`.
  void merge(const Last& other);
  /// Replaces the state: `value` becomes the last sample.
  void assign(const at::Tensor& value);

  /// The last sample, a copy. Throws `c10::ValueError` if there are none.
  at::Tensor value() const;
  /// "value".
  core::Results results() const;
  Last fresh() const;

 private:
  friend class cereal::access;
  void fold(const Pass& pass) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }

  detail::Owned value_;
};

}  // namespace torchtap::reductions
