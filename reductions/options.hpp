#pragma once

#include <torch/arg.h>

#include <cereal/types/vector.hpp>
#include <cstdint>
#include <torchtap/core/api.hpp>
#include <utility>
#include <vector>

namespace torchtap::reductions {

/// What an update does with NaN and infinities.
enum class NonFinite {
  propagate,  ///< computes with them, as torch does
  omit,       ///< leaves each such element out and counts it: `omitted()`
  raise       ///< throws `c10::ValueError` with their number; waits for the device to know it
};

namespace detail {

/// Which dimensions of a sample count as rows, and what happens to non-finite elements.
struct TORCHTAP_API Folding {
  std::vector<std::int64_t> over;
  bool over_all = false;
  NonFinite non_finite = NonFinite::propagate;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(over, over_all, non_finite);
  }
};

}  // namespace detail

/// The options that say what a row is. `Derived` is the options class itself, so that calls chain.
///
/// Without any of them one update is one row and the sample's shape is kept.
template <class Derived>
class RowOptions {
 public:
  /// Folds these dimensions of each sample too and counts their rows, in row-major order; the other
  /// dimensions are kept. Negative ones count from the end. Batches may differ in size along them.
  Derived& over(std::vector<std::int64_t> dims) {
    folding_.over = std::move(dims);
    return static_cast<Derived&>(*this);
  }
  const std::vector<std::int64_t>& over() const noexcept { return folding_.over; }

  /// Folds every dimension: each element is a row and the result has no dimensions.
  Derived& over_all(bool all) {
    folding_.over_all = all;
    return static_cast<Derived&>(*this);
  }
  bool over_all() const noexcept { return folding_.over_all; }

  const detail::Folding& folding() const noexcept { return folding_; }

 protected:
  detail::Folding folding_;
};

/// `RowOptions` and what to do with NaN and infinities.
template <class Derived>
class FoldOptions : public RowOptions<Derived> {
 public:
  /// What an update does with NaN and infinities; integers have none.
  Derived& non_finite(NonFinite policy) {
    this->folding_.non_finite = policy;
    return static_cast<Derived&>(*this);
  }
  /// The policy.
  NonFinite non_finite() const noexcept { return this->folding_.non_finite; }
};

}  // namespace torchtap::reductions
