#pragma once

#include <torchtap/model/detail/interposed.hpp>
#include <type_traits>
#include <typeinfo>

/// Whether a C++ type has a member named `forward`, of any kind.
namespace torchtap::model::detail {

struct NamesForward {
  int forward;
};
/// `forward` is ambiguous here if `T` has one too, be it overloaded, a template, private or no function.
template <class T>
struct WithAnotherForward : T, NamesForward {};

template <class T, class = void>
struct HasForward : std::true_type {};
template <class T>
struct HasForward<T, std::void_t<decltype(&WithAnotherForward<T>::forward)>> : std::false_type {};

/// False only for a type that certainly has none: nothing can be derived from a final class to ask.
template <class T>
constexpr bool may_have_forward() {
  if constexpr (!std::is_class_v<T> || std::is_final_v<T> || !std::is_destructible_v<T>) {
    return true;
  } else {
    return HasForward<T>::value;
  }
}

/// Notes that modules of this very type have no forward, if that is so. The walk over a model leaves those
/// out.
template <class Model>
void note_model() {
  if constexpr (!may_have_forward<Model>()) note_type(typeid(Model), Following::no_forward);
}

}  // namespace torchtap::model::detail
