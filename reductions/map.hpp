#pragma once

#include <string>
#include <utility>

#include <torchtap/reductions/detail/nested.hpp>

namespace torchtap::reductions {

/// Applies a callable to each sample before the reduction: `map([](auto& x) { return x.abs(); }, Mean())`.
///
/// The callable takes a `const at::Tensor&` and returns a tensor. It runs without gradients and must not
/// change its argument in place. Merging and saving are the reduction's; two callables of one type are
/// assumed to be equal.
template <class Callable, class R>
class Map {
 public:
  static_assert(core::detail::checked_reduction<R>());
  static_assert(std::is_invocable_r_v<at::Tensor, Callable&, const at::Tensor&>,
                "map takes a callable: at::Tensor(const at::Tensor& sample)");

  /// Applies `reduction` to `callable(sample)`.
  Map(Callable callable, R reduction) : callable_(std::move(callable)), reduction_(std::move(reduction)) {}

  /// Throws whatever the callable or the reduction throws, leaving the state unchanged.
  void update(const at::Tensor& sample) {
    const base::RecordingMode quiet;
    reduction_->update((*callable_)(sample));
  }
  /// Merges the reductions.
  void merge(const Map& other) { reduction_->merge(*other.reduction_); }
  /// Number of samples.
  std::int64_t count() const { return reduction_->count(); }
  /// The results of the reduction.
  core::Results results() const { return reduction_->results(); }
  /// The wrapped reduction.
  const R& inner() const& noexcept { return *reduction_; }
  /// The same of a temporary, by value.
  R inner() && { return std::move(*reduction_); }
  /// "Map(Mean)".
  std::string describe() const { return "Map(" + detail::describe(*reduction_) + ")"; }
  /// The names that the reduction looks up.
  std::vector<std::string> companions() const { return detail::companions(*reduction_); }
  /// Available if the reduction has it.
  template <class T = void, class = std::enable_if_t<detail::all_fresh_v<R>, T>>
  Map fresh() const {
    return Map(*callable_, reduction_->fresh());
  }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Map", 1);
    archive(*reduction_);
  }

 private:
  detail::Assignable<Callable> callable_;
  detail::Assignable<R> reduction_;
};

/// Applies a callable to each sample and another tensor before the reduction:
/// `map("weights", [](auto& x, auto& w) { return x * w.unsqueeze(1); }, Sum(SumOptions().over({0})))`.
///
/// `core::Context` names the other tensor around the forward; its shape is the callable's affair. All else as
/// for `Map`.
template <class Callable, class R>
class MapWith {
 public:
  static_assert(core::detail::checked_reduction<R>());
  static_assert(std::is_invocable_r_v<at::Tensor, Callable&, const at::Tensor&, const at::Tensor&>,
                "map takes a callable: at::Tensor(const at::Tensor& sample, const at::Tensor& other)");

  /// Applies `reduction` to `callable(sample, tensor called other)`.
  MapWith(std::string other, Callable callable, R reduction)
      : name_(std::move(other)), callable_(std::move(callable)), reduction_(std::move(reduction)) {}

  /// Throws `c10::ValueError` if the other tensor is missing, and whatever the callable or the reduction
  /// throws, leaving the state unchanged.
  void update(const at::Tensor& sample) {
    const base::RecordingMode quiet;
    reduction_->update((*callable_)(sample, detail::any_companion("Map", name_)));
  }
  /// Merges the reductions. Throws `c10::ValueError` if the names differ.
  void merge(const MapWith& other) {
    TORCH_CHECK_VALUE(name_ == other.name_, "reductions::Map::merge: cannot merge ", other.describe(),
                      " into ", describe(), "; both must be configured alike.");
    reduction_->merge(*other.reduction_);
  }
  /// Number of samples.
  std::int64_t count() const { return reduction_->count(); }
  /// The results of the reduction.
  core::Results results() const { return reduction_->results(); }
  /// The wrapped reduction.
  const R& inner() const& noexcept { return *reduction_; }
  /// The same of a temporary, by value.
  R inner() && { return std::move(*reduction_); }
  /// "Map(weights, Sum)".
  std::string describe() const { return "Map(" + name_ + ", " + detail::describe(*reduction_) + ")"; }
  /// The other tensor's name, and the names that the reduction looks up.
  std::vector<std::string> companions() const {
    auto names = detail::companions(*reduction_);
    names.insert(names.begin(), name_);
    return names;
  }
  /// Available if the reduction has it.
  template <class T = void, class = std::enable_if_t<detail::all_fresh_v<R>, T>>
  MapWith fresh() const {
    return MapWith(name_, *callable_, reduction_->fresh());
  }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Map", 1);
    archive(*reduction_);
  }

 private:
  std::string name_;
  detail::Assignable<Callable> callable_;
  detail::Assignable<R> reduction_;
};

/// Applies `reduction`, or a callable that folds two tensors, to `callable(sample)`.
template <class Callable, class R>
auto map(Callable&& callable, R&& reduction) {
  return Map(std::decay_t<Callable>(std::forward<Callable>(callable)),
             detail::as_reduction(std::forward<R>(reduction)));
}

/// Applies `reduction`, or a callable that folds two tensors, to `callable(sample, tensor called other)`.
template <class Callable, class R>
auto map(std::string other, Callable&& callable, R&& reduction) {
  return MapWith(std::move(other), std::decay_t<Callable>(std::forward<Callable>(callable)),
                 detail::as_reduction(std::forward<R>(reduction)));
}

}  // namespace torchtap::reductions
