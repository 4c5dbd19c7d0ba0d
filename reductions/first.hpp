#pragma once

/// Keeps the first sample.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/one_sample.hpp>

namespace torchtap::reductions {

/// `FirstOptions().over({0})`.
class TORCHTAP_API FirstOptions : public RowOptions<FirstOptions> {};

/// The first sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
///
/// Later samples are checked and counted, but their elements are not read.
class TORCHTAP_API First : public OneSample {
 public:
  explicit First(FirstOptions options = {});
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const First& other);
  /// The same reduction without samples.
  First fresh() const { return cleared(*this); }

 private:
  void fold(const Pass& pass) override;
};

}  // namespace torchtap::reductions
