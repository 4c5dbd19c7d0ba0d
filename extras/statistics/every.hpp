#pragma once

/// Applies a reduction to every n-th sample.

#include <string>
#include <utility>

#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::reductions {

/// Applies a reduction to every n-th sample, starting with the first: `every(10, Mean())` takes samples 0,
/// 10, 20, ...
///
/// Skipped samples are not looked at: they may have any shape and cost nothing.
template <class R>
class Every {
 public:
  static_assert(extend::checked_reduction<R>());

  /// Throws `c10::ValueError` unless n is positive.
  Every(std::int64_t n, R reduction) : n_(n), reduction_(std::move(reduction)) {
    TORCH_CHECK_VALUE(n_ > 0, "every: expected a positive number of samples, got ", n_, ".");
  }

  /// Throws whatever the reduction throws, leaving the state unchanged.
  void update(const at::Tensor& sample) {
    if (seen_ % n_ == 0) reduction_->update(sample);
    ++seen_;
  }
  /// Throws whatever `update` would throw for this sample, without changing the state. Available if the
  /// reduction has it.
  template <class T = void, class = std::enable_if_t<extend::has_check<R>::value, T>>
  void check(const at::Tensor& sample) const {
    if (seen_ % n_ == 0) reduction_->check(sample);
  }
  /// Merges `other` as if its samples had followed this object's. In that single stream, `other` would have
  /// picked different samples unless this object has seen a multiple of n. Throws `c10::ValueError` in that
  /// case, unless `other` has seen nothing. To combine two streams that each started at their own first
  /// sample, merge copies of `inner()`.
  void merge(const Every& other) {
    TORCH_CHECK_VALUE(n_ == other.n_, "reductions::Every::merge: cannot merge ", other.describe(), " into ",
                      describe(), "; both must be configured alike.");
    TORCH_CHECK_VALUE(
        other.seen_ == 0 || seen_ % n_ == 0, "reductions::Every::merge: cannot merge into ", describe(),
        " after ", seen_, " samples: a single stream would have picked other samples of the ", other.seen_,
        " that follow. Merge after a multiple of ", n_, " samples, or merge the inner() of both.");
    reduction_->merge(*other.reduction_);
    seen_ += other.seen_;
  }
  /// Number of samples given to the reduction.
  std::int64_t count() const { return reduction_->count(); }
  /// Number of samples seen, including skipped ones.
  std::int64_t seen() const noexcept { return seen_; }
  /// The results of the reduction.
  core::Results results() const { return reduction_->results(); }
  /// The wrapped reduction.
  const R& inner() const& noexcept { return *reduction_; }
  /// For a temporary: returns by value.
  R inner() && { return std::move(*reduction_); }
  /// "Every(10, Mean)".
  std::string describe() const {
    return "Every(" + std::to_string(n_) + ", " + extend::describe(*reduction_) + ")";
  }
  /// The names that the reduction looks up.
  std::vector<std::string> companions() const { return extend::companions(*reduction_); }
  /// Available if the reduction has it.
  template <class T = void, class = std::enable_if_t<extend::all_fresh_v<R>, T>>
  Every fresh() const {
    return Every(n_, reduction_->fresh());
  }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Every", 1);
    archive(n_, seen_, *reduction_);
    if constexpr (Archive::is_loading::value) {
      TORCH_CHECK_VALUE(n_ > 0 && seen_ >= 0, "restore: the archive claims every ", n_, "-th of ", seen_,
                        " samples; it is damaged.");
    }
  }

 private:
  friend struct core::Access;
  std::string recipe() const { return extend::recipe_of("Every", extend::recipe(*reduction_)); }

  std::int64_t n_;
  std::int64_t seen_ = 0;
  extend::Assignable<R> reduction_;
};

/// Applies `reduction`, or a callable that folds two tensors, to every n-th sample.
template <class R>
auto every(std::int64_t n, R&& reduction) {
  return Every(n, extend::as_reduction(std::forward<R>(reduction)));
}

}  // namespace torchtap::reductions
