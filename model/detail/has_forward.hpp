#pragma once

#include <type_traits>
#include <typeinfo>

#include <torchtap/model/detail/interposed.hpp>

/// Detects whether a C++ type has a member named `forward`, of any kind.
namespace torchtap::model::detail {

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

/// Records modules of exactly this type as having no forward if that is certain; see
/// `ModuleRef::has_forward`.
template <class Model>
void note_model() {
  if constexpr (!may_have_forward<Model>()) note_type(typeid(Model), Following::no_forward);
}

}  // namespace torchtap::model::detail
