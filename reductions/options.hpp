#pragma once

/// Defines the options that reductions share: which dimensions are rows, and how NaN is treated.

#include <cereal/types/vector.hpp>
#include <torch/arg.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::reductions {

/// How an update treats NaN and infinities.
enum class NonFinite {
  propagate,  ///< compute with them, as torch does
  omit,       ///< leave each such element out and count it; see `omitted()`
  raise       ///< throw `c10::ValueError` with their number; synchronises with the device
};

namespace detail {

/// The dimensions of a sample that count as rows, and the handling of non-finite elements.
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

/// Options that define the rows. `Derived` is the options class itself, so that calls chain.
///
/// By default each update is one row and keeps the sample's shape.
template <class Derived>
class RowOptions {
 public:
  /// Also folds these dimensions of each sample and counts their rows in row-major order; the other
  /// dimensions are kept. Negative dimensions count from the end. Samples may differ in size along them.
  Derived& over(std::vector<std::int64_t> dims) {
    folding_.over = std::move(dims);
    return static_cast<Derived&>(*this);
  }
  /// One number is no list.
  template <class Dim, class = std::enable_if_t<std::is_integral_v<Dim>>>
  Derived& over(Dim) {
    static_assert(!std::is_integral_v<Dim>, "over takes a list of dimensions: over({0})");
    return static_cast<Derived&>(*this);
  }
  const std::vector<std::int64_t>& over() const noexcept { return folding_.over; }

  /// Folds every dimension: each element is a row, and the result has no dimensions.
  Derived& over_all(bool all = true) {
    folding_.over_all = all;
    return static_cast<Derived&>(*this);
  }
  bool over_all() const noexcept { return folding_.over_all; }

  const detail::Folding& folding() const& noexcept { return folding_; }
  /// For a temporary: returns by value.
  detail::Folding folding() && { return std::move(folding_); }

 protected:
  detail::Folding folding_;
};

/// `RowOptions`, plus the treatment of NaN and infinities.
template <class Derived>
class FoldOptions : public RowOptions<Derived> {
 public:
  /// How an update treats NaN and infinities. No effect on integers.
  Derived& non_finite(NonFinite policy) {
    this->folding_.non_finite = policy;
    return static_cast<Derived&>(*this);
  }
  /// The current policy.
  NonFinite non_finite() const noexcept { return this->folding_.non_finite; }
};

}  // namespace torchtap::reductions
