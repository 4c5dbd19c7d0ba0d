#pragma once

/// Decides which types certainly hold no tensors and so need no `hooks::Visit`.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <torchtap/base/is_complete.hpp>

namespace c10 {
template <class T>
class OptionalArrayRef;
template <class Key, class Value>
class Dict;
template <class T>
class List;
}  // namespace c10
namespace at {
struct Generator;
}
namespace torch::nn {
class Module;
}
namespace torch::detail {
struct ModuleHolderIndicator;
}

namespace torchtap::hooks::detail {

using base::IsComplete;

template <class T>
constexpr bool is_plain();

/// Types that own memory are listed here. Modules and callables passed as arguments are not searched.
template <class T>
struct IsPlain
    : std::bool_constant<std::is_same_v<T, c10::Scalar> || std::is_same_v<T, c10::SymInt> ||
                         std::is_same_v<T, c10::Storage> || std::is_same_v<T, c10::TensorOptions> ||
                         std::is_same_v<T, at::Generator>> {};
template <class... Ts>
struct IsPlain<std::basic_string<Ts...>> : std::true_type {};
template <class R, class... Args>
struct IsPlain<std::function<R(Args...)>> : std::true_type {};
template <class T>
struct IsPlain<std::weak_ptr<T>> : std::bool_constant<is_plain<T>()> {};
template <class T>
struct IsPlain<c10::ArrayRef<T>> : std::bool_constant<is_plain<T>()> {};
template <class T>
struct IsPlain<c10::OptionalArrayRef<T>> : std::bool_constant<is_plain<T>()> {};
template <class T>
struct IsPlain<c10::List<T>> : std::bool_constant<is_plain<T>()> {};
template <class K, class V>
struct IsPlain<c10::Dict<K, V>> : std::bool_constant<is_plain<V>()> {};
template <>
struct IsPlain<std::vector<bool>> : std::true_type {};

/// A view such as `std::span<at::Tensor>` is trivially copyable, but refers to tensors.
template <class T>
struct RefersTo : std::false_type {};
template <template <class...> class X, class... Ts>
struct RefersTo<X<Ts...>> : std::bool_constant<!(is_plain<Ts>() && ...)> {};
template <template <class, std::size_t> class X, class T, std::size_t N>
struct RefersTo<X<T, N>> : std::bool_constant<!is_plain<T>()> {};

template <class T>
constexpr bool is_plain() {
  if constexpr (!std::is_same_v<T, std::remove_cv_t<T>>) {
    return is_plain<std::remove_cv_t<T>>();
  } else if constexpr (std::is_function_v<T>) {
    return true;
  } else if constexpr (std::is_pointer_v<T>) {
    return is_plain<std::remove_pointer_t<T>>();
  } else if constexpr (std::is_scalar_v<T>) {
    return true;
  } else if constexpr (!IsComplete<T>::value || std::is_reference_v<T>) {
    return false;
  } else if constexpr (std::is_array_v<T>) {
    return is_plain<std::remove_all_extents_t<T>>();
  } else if constexpr (std::is_base_of_v<torch::nn::Module, T> ||
                       std::is_base_of_v<torch::detail::ModuleHolderIndicator, T>) {
    return true;
  } else if constexpr (std::is_trivially_copyable_v<T>) {
    return std::is_empty_v<T> || IsPlain<T>::value || !RefersTo<T>::value;
  } else {
    return std::is_empty_v<T> || IsPlain<T>::value;
  }
}

/// Whether no value of type `T` holds tensors. A trivially copyable type owns none.
template <class T>
inline constexpr bool is_plain_v = is_plain<T>();

}  // namespace torchtap::hooks::detail
