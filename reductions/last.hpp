#pragma once

/// Keeps the last sample.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/one_sample.hpp>

namespace torchtap::reductions {

/// `LastOptions().over({0})`.
class TORCHTAP_API LastOptions : public RowOptions<LastOptions> {};

/// The last sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
class TORCHTAP_API Last : public OneSample {
 public:
  explicit Last(LastOptions options = {});
  /// As `First::merge`.
  void merge(const Last& other);
  /// The same reduction without samples.
  Last fresh() const { return cleared(*this); }

 private:
  void fold(const Pass& pass) override;
};

}  // namespace torchtap::reductions
