#pragma once

/// Applies a callable to each sample before a reduction.

#include <string>
#include <utility>

#include <torchtap/statistics/extend/companions.hpp>

namespace torchtap::reductions {

/// Applies a callable to each sample before the reduction: `map([](auto& x) { return x.abs(); }, Mean())`; or
/// to each sample and another tensor:
/// `map("weights", [](auto& x, auto& w) { return x * w.unsqueeze(1); }, Sum(SumOptions().over({0})))`.
///
/// `core::Context` names the other tensor around the forward; its shape is the callable's affair. The
/// callable returns a tensor, runs without gradients and must not change its arguments in place. Merging and
/// saving are the reduction's; two callables of one type are assumed to be equal.
template <class Callable, class R>
class Map {
  static constexpr bool kTakesOne = std::is_invocable_r_v<at::Tensor, Callable&, const at::Tensor&>;
  static constexpr bool kTakesTwo =
      std::is_invocable_r_v<at::Tensor, Callable&, const at::Tensor&, const at::Tensor&>;

 public:
  static_assert(extend::checked_reduction<R>());
  static_assert(kTakesOne || kTakesTwo,
                "map takes a callable: at::Tensor(const at::Tensor& sample), or at::Tensor(const at::Tensor& "
                "sample, const at::Tensor& other) behind the other tensor's name");

  /// Applies `reduction` to `callable(sample)`.
  Map(Callable callable, R reduction) : callable_(std::move(callable)), reduction_(std::move(reduction)) {
    static_assert(kTakesOne,
                  "a callable of two tensors needs the other one's name: map(\"name\", callable, r)");
  }
  /// Applies `reduction` to `callable(sample, tensor called other)`. Throws `c10::ValueError` if the name is
  /// empty.
  Map(std::string other, Callable callable, R reduction)
      : name_(std::move(other)), callable_(std::move(callable)), reduction_(std::move(reduction)) {
    static_assert(kTakesTwo, "a name is for a callable of two tensors: the sample, and the tensor it names");
    TORCH_CHECK_VALUE(!name_.empty(), "reductions::map: the other tensor's name is empty.");
  }

  /// Throws `c10::ValueError` if the other tensor is missing, and whatever the callable or the reduction
  /// throws, leaving the state unchanged.
  void update(const at::Tensor& sample) {
    const base::RecordingMode quiet;
    if constexpr (kTakesTwo) {
      if (!kTakesOne || !name_.empty())
        return reduction_->update((*callable_)(sample, extend::any_companion("Map", name_)));
    }
    if constexpr (kTakesOne) reduction_->update((*callable_)(sample));
  }
  /// Merges the reductions. Throws `c10::ValueError` if the names differ.
  void merge(const Map& other) {
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
  /// For a temporary: returns by value.
  R inner() && { return std::move(*reduction_); }
  /// "Map(Mean)", "Map(weights, Sum)".
  std::string describe() const {
    return "Map(" + name_ + (name_.empty() ? "" : ", ") + extend::describe(*reduction_) + ")";
  }
  /// The other tensor's name, if there is one, and the names that the reduction looks up.
  std::vector<std::string> companions() const {
    auto names = extend::companions(*reduction_);
    if (!name_.empty()) names.insert(names.begin(), name_);
    return names;
  }
  /// Available if the reduction has it.
  template <class T = void, class = std::enable_if_t<extend::all_fresh_v<R>, T>>
  Map fresh() const {
    Map fresh = *this;
    fresh.reduction_ = reduction_->fresh();
    return fresh;
  }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Map", 1);
    archive(*reduction_);
  }

 private:
  std::string name_;  // empty if the callable takes only the sample
  extend::Assignable<Callable> callable_;
  extend::Assignable<R> reduction_;
};

/// Applies `reduction`, or a callable that folds two tensors, to `callable(sample)`.
template <class Callable, class R>
auto map(Callable&& callable, R&& reduction) {
  return Map(std::decay_t<Callable>(std::forward<Callable>(callable)),
             extend::as_reduction(std::forward<R>(reduction)));
}

/// Applies `reduction`, or a callable that folds two tensors, to `callable(sample, tensor called other)`.
template <class Callable, class R>
auto map(std::string other, Callable&& callable, R&& reduction) {
  return Map(std::move(other), std::decay_t<Callable>(std::forward<Callable>(callable)),
             extend::as_reduction(std::forward<R>(reduction)));
}

}  // namespace torchtap::reductions
