#pragma once

/// Queries the reductions inside combinators: their descriptions, recipes and companions.

#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions::detail {

using core::detail::has_check;

/// Whether `T` can share one pass over a sample with other reductions.
template <class T>
inline constexpr bool shares_pass_v = std::is_base_of_v<SharesPass, T>;

/// Whether all have `fresh()`. If not, the sink resets to a copy that it keeps.
template <class... Rs>
inline constexpr bool all_fresh_v = (core::detail::has_fresh<Rs>::value && ...);

/// "a::Mine<int>" as "Mine".
TORCHTAP_API std::string short_name(const std::string& type);

/// "Every(Mean)"; empty if `part` is empty.
TORCHTAP_API std::string recipe_of(const char* combinator, const std::string& part);

/// The reduction's `describe()`, or else its type without namespaces and template arguments.
template <class R>
std::string describe(const R& reduction) {
  if constexpr (core::detail::has_describe<R>::value) {
    return reduction.describe();
  } else {
    return short_name(c10::demangle(typeid(R).name()));
  }
}

/// The recipe that `restore` recreates the reduction from; empty if it has none.
template <class R>
std::string recipe(const R& reduction) {
  if constexpr (core::detail::has_recipe<R>::value) {
    return core::Access::recipe(reduction);
  } else {
    return {};
  }
}

/// Whether the order of samples, and of merges, does not matter to a reduction.
template <class R>
bool commutative(const R& reduction) {
  if constexpr (core::detail::has_commutative<R>::value) {
    return reduction.commutative();
  } else {
    return false;
  }
}

/// The names of the tensors that a reduction looks up in the thread's `core::Context`.
template <class R>
std::vector<std::string> companions(const R& reduction) {
  if constexpr (core::detail::has_companions<R>::value) {
    return reduction.companions();
  } else {
    return {};
  }
}

/// Throws `c10::ValueError` if `reduction` needs companions, whose rows `combinator` would lose.
template <class R>
void expect_no_companions(const char* combinator, const R& reduction) {
  const auto names = companions(reduction);
  TORCH_CHECK_VALUE(names.empty(), "reductions::", combinator, ": ", describe(reduction), " needs ",
                    base::quoted(names), " beside each sample; write by and where around ", combinator,
                    ", not inside.");
}

/// "AbsMax(over=[0])" as "abs_max": the description up to its arguments, in snake case.
TORCHTAP_API std::string snake_case(const std::string& description);

/// A reduction unchanged, or a callable `(accumulated, sample) -> accumulated` as a `core::Fold`.
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

/// Makes a value assignable even if it is or holds a lambda, which is not, so that classes holding it stay
/// regular.
template <class T, bool = std::is_copy_assignable_v<T>>
class Assignable {
 public:
  Assignable(T value) : value_(std::move(value)) {}  // NOLINT: transparent wrapper

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
  Assignable(T value) : value_(std::move(value)) {}  // NOLINT: transparent wrapper
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
