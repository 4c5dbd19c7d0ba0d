#pragma once

// Detects whether a type is complete.

#include <type_traits>

namespace torchtap::base {

/// Whether a type is complete where this is first instantiated.
template <class T, class = void>
struct IsComplete : std::false_type {};
template <class T>
struct IsComplete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

}  // namespace torchtap::base
