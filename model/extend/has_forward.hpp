#pragma once

/// Detects whether a C++ type has a member named `forward`, of any kind, and whether it is Sequential's.

#include <ATen/core/Tensor.h>

#include <type_traits>
#include <typeinfo>

#include <torchtap/model/extend/interposed_calls.hpp>

namespace torch::nn {
class SequentialImpl;
}

namespace torchtap::model::extend {

struct NamesForward {
  int forward;
};
/// `forward` is ambiguous here if `T` also has one: overloaded, a template, private or not a function.
template <class T>
struct WithAnotherForward : T, NamesForward {};

template <class T, class = void>
struct HasForward : std::true_type {};
template <class T>
struct HasForward<T, std::void_t<decltype(&WithAnotherForward<T>::forward)>> : std::false_type {};

/// False only if `T` certainly has none. True for final classes, because the test derives from `T`.
template <class T>
constexpr bool may_have_forward() {
  if constexpr (!std::is_class_v<T> || std::is_final_v<T> || !std::is_destructible_v<T>) {
    return true;
  } else {
    return HasForward<T>::value;
  }
}

template <class T, class = void>
struct SequentialForward : std::false_type {};
template <class T>
struct SequentialForward<T, std::void_t<decltype(&T::template forward<at::Tensor, at::Tensor&>)>>
    : std::is_same<decltype(&T::template forward<at::Tensor, at::Tensor&>),
                   at::Tensor (torch::nn::SequentialImpl::*)(at::Tensor&)> {};

/// Whether `T` inherits its forward from `torch::nn::SequentialImpl`.
template <class T>
constexpr bool is_sequential() {
  if constexpr (std::is_base_of_v<torch::nn::SequentialImpl, T>) {
    return SequentialForward<T>::value;
  } else {
    return false;
  }
}

/// Records the facts about the forward of modules of exactly this type; see `ModuleRef::has_forward`.
template <class Model>
void note_model() {
  if constexpr (!may_have_forward<Model>()) {
    note_type(typeid(Model), Following::no_forward);
  } else if constexpr (is_sequential<Model>()) {
    note_type(typeid(Model), Following::sequential);
  }
}

}  // namespace torchtap::model::extend
