#pragma once

/// Applies a reduction to the rows of each sample.

#include <string>
#include <utility>
#include <vector>

#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/detail/nested.hpp>

namespace torchtap::reductions {

/// Applies a reduction to the rows of each sample: `over({0}, MyReduction())`.
///
/// For reductions without their own `over(dims)`, which is faster: this calls `update` once per row, on a
/// copy of the reduction.
template <class R>
class Over {
 public:
  static_assert(core::detail::checked_reduction<R>());

  /// Applies `reduction` to the rows of each sample along `dims`. Throws `c10::ValueError` if it needs names
  /// of a `core::Context`.
  Over(std::vector<std::int64_t> dims, R reduction)
      : dims_(std::move(dims)), reduction_(std::move(reduction)) {
    detail::expect_no_companions("over", *reduction_);
  }

  /// Throws `c10::ValueError` if the sample lacks a dimension, and whatever the reduction throws, leaving the
  /// state unchanged.
  void update(const at::Tensor& sample) {
    const base::RecordingMode quiet;
    const detail::Rows rows = detail::Intake("over", detail::Folding{dims_}).open(sample);
    auto sizes = rows.kept().vec();
    sizes.insert(sizes.begin(), rows.count);
    const at::Tensor all = rows.view.reshape(sizes);
    R next = *reduction_;
    for (std::int64_t row = 0; row < rows.count; ++row) next.update(all.select(0, row));
    reduction_ = detail::Assignable<R>(std::move(next));
  }
  /// Merges the reductions. Throws `c10::ValueError` if the dimensions differ.
  void merge(const Over& other) {
    TORCH_CHECK_VALUE(dims_ == other.dims_, "reductions::Over::merge: cannot merge ", other.describe(),
                      " into ", describe(), "; both must be configured alike.");
    reduction_->merge(*other.reduction_);
  }
  /// Number of rows.
  std::int64_t count() const { return reduction_->count(); }
  /// The results of the reduction.
  core::Results results() const { return reduction_->results(); }
  /// The wrapped reduction.
  const R& inner() const& noexcept { return *reduction_; }
  /// For a temporary: returns by value.
  R inner() && { return std::move(*reduction_); }
  /// "Over([0], Mean)".
  std::string describe() const {
    return c10::str("Over(", at::IntArrayRef(dims_), ", ", detail::describe(*reduction_), ")");
  }
  /// Whether samples may come in any order, as the reduction says.
  bool commutative() const { return detail::commutative(*reduction_); }
  /// Available if the reduction has it.
  template <class T = void, class = std::enable_if_t<detail::all_fresh_v<R>, T>>
  Over fresh() const {
    return Over(dims_, reduction_->fresh());
  }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Over", 1);
    archive(dims_, *reduction_);
  }

 private:
  friend struct core::Access;
  std::string recipe() const { return detail::recipe_of("Over", detail::recipe(*reduction_)); }

  std::vector<std::int64_t> dims_;
  detail::Assignable<R> reduction_;
};

/// Applies `reduction`, or a callable that folds two tensors, to the rows of each sample along `dims`.
template <class R>
auto over(std::vector<std::int64_t> dims, R&& reduction) {
  return Over(std::move(dims), detail::as_reduction(std::forward<R>(reduction)));
}
/// One number is no list.
template <class Dim, class R, class = std::enable_if_t<std::is_integral_v<Dim>>>
void over(Dim, R&&) {
  static_assert(!std::is_integral_v<Dim>, "over takes a list of dimensions: over({0}, reduction)");
}

}  // namespace torchtap::reductions
