#pragma once

#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/core/sink.hpp>
#include <type_traits>
#include <utility>

/// What the combinators need to know about the reductions inside them.
namespace torchtap::reductions::detail {

using core::detail::has_check;

class Scan;

/// Whether `T` can share one pass over a sample with others.
template <class T, class = void>
struct has_scan : std::false_type {};
template <class T>
struct has_scan<T, std::void_t<decltype(std::declval<const T&>().ask(std::declval<Scan&>())),
                               decltype(std::declval<const T&>().check(std::declval<const Scan&>())),
                               decltype(std::declval<T&>().update(std::declval<const Scan&>()))>>
    : std::true_type {};

/// Whether all have `fresh()`; what has not is started anew by the sink that keeps a copy.
template <class... Rs>
inline constexpr bool all_fresh_v = (core::detail::has_fresh<Rs>::value && ...);

/// "a::Mine<int>" as "Mine".
std::string short_name(const std::string& type);

/// "Every(Mean)"; empty if the part is.
std::string recipe_of(const char* combinator, const std::string& part);

/// What a reduction calls itself, or else its type without namespaces and arguments.
template <class R>
std::string describe(const R& reduction) {
  if constexpr (core::detail::has_describe<R>::value) {
    return reduction.describe();
  } else {
    return short_name(c10::demangle(typeid(R).name()));
  }
}

/// Of what a reduction could be made anew; empty if it could not.
template <class R>
std::string recipe(const R& reduction) {
  if constexpr (core::detail::has_recipe<R>::value) {
    return reduction.recipe();
  } else {
    return {};
  }
}

/// Whether samples may come to a reduction in any order, and to several that are merged.
template <class R>
bool commutative(const R& reduction) {
  if constexpr (core::detail::has_commutative<R>::value) {
    return reduction.commutative();
  } else {
    return false;
  }
}

/// "AbsMax(over=[0])" as "abs_max": the description up to its arguments, in snake case.
std::string snake_case(const std::string& description);

/// A reduction as it is; a callable `(accumulated, sample) -> accumulated` as a `core::Fold`.
template <class R>
auto as_reduction(R&& reduction) {
  if constexpr (core::is_reduction_v<R>) {
    return std::decay_t<R>(std::forward<R>(reduction));
  } else {
    static_assert(core::is_fold_v<R>,
                  "expected a reduction (update, merge, count, results) or a callable "
                  "at::Tensor(const at::Tensor& accumulated, const at::Tensor& sample)");
    return core::Fold<std::decay_t<R>>(std::forward<R>(reduction));
  }
}

/// A value that can be assigned even if it is, or holds, a lambda, which cannot; so what holds it is regular.
template <class T, bool = std::is_copy_assignable_v<T>>
class Assignable {
 public:
  Assignable(T value) : value_(std::move(value)) {}  // NOLINT: a mere wrapper

  T& operator*() noexcept { return value_; }
  const T& operator*() const noexcept { return value_; }
  T* operator->() noexcept { return &value_; }
  const T* operator->() const noexcept { return &value_; }

 private:
  T value_;
};

template <class T>
class Assignable<T, false> {
 public:
  Assignable(T value) : value_(std::move(value)) {}  // NOLINT: a mere wrapper
  Assignable(const Assignable&) = default;
  Assignable(Assignable&&) = default;
  Assignable& operator=(const Assignable& other) {
    if (this != &other) value_.emplace(*other.value_);
    return *this;
  }
  Assignable& operator=(Assignable&& other) {
    if (this != &other) value_.emplace(std::move(*other.value_));
    return *this;
  }
  ~Assignable() = default;

  T& operator*() noexcept { return *value_; }
  const T& operator*() const noexcept { return *value_; }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

 private:
  std::optional<T> value_;  // never empty
};

}  // namespace torchtap::reductions::detail
