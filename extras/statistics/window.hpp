#pragma once

/// Applies a reduction to the last n samples.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::reductions {

/// Applies a reduction to the last n samples: `window(100, Mean())`.
///
/// Keeps copies of the last n samples and recomputes the reduction whenever results are asked for, so it
/// works with any reduction.
template <class R>
class Window {
 public:
  static_assert(extend::checked_reduction<R>());

  /// Throws `c10::ValueError` unless n is positive and `reduction` has no samples and needs no names of a
  /// `core::Context`.
  Window(std::int64_t n, R reduction) : n_(n), empty_(std::move(reduction)) {
    TORCH_CHECK_VALUE(n_ > 0, "window: expected a positive number of samples, got ", n_, ".");
    TORCH_CHECK_VALUE(empty_->count() == 0, "window: expected a reduction without samples, got ",
                      extend::describe(*empty_), " with ", empty_->count(), "; pass a new one.");
    extend::expect_no_companions("window", *empty_);
  }

  /// Throws whatever the reduction throws on this sample after the previous one, leaving the state unchanged.
  void update(const at::Tensor& sample) {
    const base::RecordingMode quiet;
    R trial = *empty_;
    if (seen_ != 0) trial.update(samples_[index(seen_ - 1)]);
    trial.update(sample);
    place(extend::own_copy(sample));
  }
  /// Merges `other` as if its samples had followed this object's, keeping the last n of both. Throws
  /// `c10::ValueError` if the configuration differs, and whatever the reduction throws if the samples do not
  /// fit, leaving the state unchanged.
  void merge(const Window& other) {
    TORCH_CHECK_VALUE(describe() == other.describe(), "reductions::Window::merge: cannot merge ",
                      other.describe(), " into ", describe(), "; both must be configured alike.");
    R trial = *empty_;
    if (seen_ != 0) trial.update(samples_[index(seen_ - 1)]);
    if (other.seen_ != 0) trial.update(other.samples_[other.index(other.seen_ - 1)]);
    const Window theirs = other;  // `other` may be *this
    if (theirs.seen_ < n_) {
      for (const auto& sample : theirs.samples_) place(sample);
      return;
    }
    samples_.resize(theirs.samples_.size());
    seen_ += theirs.seen_;
    for (std::int64_t back = 1; back <= n_; ++back) {
      samples_[index(seen_ - back)] = theirs.samples_[theirs.index(theirs.seen_ - back)];
    }
  }
  /// The reduction of the samples in the window.
  R reduced() const {
    R result = *empty_;
    for (std::int64_t i = std::max<std::int64_t>(seen_ - n_, 0); i < seen_; ++i)
      result.update(samples_[index(i)]);
    return result;
  }
  /// Number of samples, or of rows if the reduction counts rows, in the window.
  std::int64_t count() const { return reduced().count(); }
  /// Number of samples seen.
  std::int64_t seen() const noexcept { return seen_; }
  /// The results of the reduction of the window.
  core::Results results() const { return reduced().results(); }
  /// "Window(100, Mean)".
  std::string describe() const {
    return "Window(" + std::to_string(n_) + ", " + extend::describe(*empty_) + ")";
  }
  Window fresh() const { return Window(n_, *empty_); }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Window", 1);
    archive(n_, seen_, samples_);
    if constexpr (extend::has_recipe<R>::value) archive(*empty_);  // its configuration
    if constexpr (Archive::is_loading::value) {
      TORCH_CHECK_VALUE(n_ > 0 && seen_ >= 0 && empty_->count() == 0 &&
                            static_cast<std::int64_t>(samples_.size()) == std::min(seen_, n_),
                        "restore: the archive claims a window of ", n_, " after ", seen_, " samples with ",
                        samples_.size(), " in it; it is damaged.");
    }
  }

 private:
  friend struct core::Access;
  std::string recipe() const { return extend::recipe_of("Window", extend::recipe(*empty_)); }

  std::size_t index(std::int64_t i) const { return static_cast<std::size_t>(i % n_); }
  void place(at::Tensor sample) {
    if (seen_ < n_) {
      samples_.push_back(std::move(sample));
    } else {
      samples_[index(seen_)] = std::move(sample);
    }
    ++seen_;
  }

  std::int64_t n_;
  std::int64_t seen_ = 0;
  extend::Assignable<R> empty_;
  std::vector<at::Tensor>
      samples_;  // ring buffer: sample i at i % n. Never changed in place, so copies may share them
};

/// Applies `reduction`, or a callable that folds two tensors, to the last n samples.
template <class R>
auto window(std::int64_t n, R&& reduction) {
  return Window(n, extend::as_reduction(std::forward<R>(reduction)));
}

}  // namespace torchtap::reductions
