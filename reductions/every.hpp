#pragma once

#include <string>
#include <torchtap/reductions/detail/nested.hpp>
#include <utility>

namespace torchtap::reductions {

/// A reduction of every n-th sample, from the first on: `every(10, Mean())` takes samples 0, 10, 20, ...
///
/// The others are not looked at, so they may have any shape and cost nothing.
template <class R>
class Every {
 public:
  static_assert(core::is_reduction_v<R>, "every takes a number and a reduction");

  /// Throws `c10::ValueError` unless n is positive.
  Every(std::int64_t n, R reduction) : n_(n), reduction_(std::move(reduction)) {
    TORCH_CHECK_VALUE(n_ > 0, "every: expected a positive number of samples, got ", n_, ".");
  }

  /// Throws what the reduction throws; the state is then unchanged.
  void update(const at::Tensor& sample) {
    if (seen_ % n_ == 0) reduction_->update(sample);
    ++seen_;
  }
  /// Throws what `update` would throw for this sample; changes nothing. There if the reduction has it.
  template <class T = void, class = std::enable_if_t<detail::has_check<R>::value, T>>
  void check(const at::Tensor& sample) const {
    if (seen_ % n_ == 0) reduction_->check(sample);
  }
  /// Afterwards as if this object had seen its stream and then `other`'s. In that one stream `other`'s
  /// samples would have been picked from another phase unless this object has seen a multiple of n, so
  /// otherwise it throws `c10::ValueError` (unless `other` has seen nothing). To join what two streams
  /// picked, each from its own first sample, merge copies of `inner()`.
  void merge(const Every& other) {
    TORCH_CHECK_VALUE(n_ == other.n_, "Every::merge: cannot merge ", other.describe(), " into ", describe(),
                      "; both must be configured alike.");
    TORCH_CHECK_VALUE(other.seen_ == 0 || seen_ % n_ == 0, "Every::merge: cannot merge into ", describe(),
                      " after ", seen_, " samples: one stream would have picked other samples of the ",
                      other.seen_, " that follow. Merge after a multiple of ", n_,
                      " samples, or merge what both picked: inner().");
    reduction_->merge(*other.reduction_);
    seen_ += other.seen_;
  }
  /// Samples the reduction was given.
  std::int64_t count() const { return reduction_->count(); }
  /// Samples that came by.
  std::int64_t seen() const noexcept { return seen_; }
  /// The results of the reduction.
  core::Results results() const { return reduction_->results(); }
  /// The reduction, with its named results.
  const R& inner() const noexcept { return *reduction_; }
  /// "Every(10, Mean)".
  std::string describe() const {
    return "Every(" + std::to_string(n_) + ", " + detail::describe(*reduction_) + ")";
  }
  /// For `restore`.
  std::string recipe() const { return detail::recipe_of("Every", detail::recipe(*reduction_)); }
  /// There if the reduction has it.
  template <class T = void, class = std::enable_if_t<detail::all_fresh_v<R>, T>>
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
  std::int64_t n_;
  std::int64_t seen_ = 0;
  detail::Assignable<R> reduction_;
};

/// `reduction`, or a callable that folds two tensors, of every n-th sample.
template <class R>
auto every(std::int64_t n, R&& reduction) {
  return Every(n, detail::as_reduction(std::forward<R>(reduction)));
}

}  // namespace torchtap::reductions
