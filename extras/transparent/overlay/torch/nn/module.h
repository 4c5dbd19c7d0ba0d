#pragma once
#pragma GCC system_header

// See pimpl.h beside this file. Module::as<Holder>() has to return the type that a holder calls through.

#include <ATen/ATen.h>
#include <torch/nn/modules/container/any_module_holder.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include <torchtap/model/extend/interposed_calls.hpp>

namespace torchtap::transparent::detail {

/// The type of the objects seen as `T`: `T` itself, or the `Impl` of a view.
template <class T, class = void>
struct PlainOf {
  using Type = T;
};
template <class T>
struct PlainOf<T, std::void_t<decltype(T::torchtap_is_view)>> {
  using Type = typename T::TorchtapImpl;
};

/// dynamic_cast to the type of the object, then a cast to the view that `To` asks for.
template <class To, class From>
To module_cast(From* module) noexcept {
  using Target = std::remove_cv_t<std::remove_pointer_t<To>>;
  using Impl = typename PlainOf<Target>::Type;
  auto* const found = dynamic_cast<std::conditional_t<std::is_const_v<From>, const Impl, Impl>*>(module);
  if constexpr (!std::is_same_v<Target, typename SeenOf<Impl>::Type>) {
    if (found != nullptr) model::extend::note_given_out(*module);
  }
  return static_cast<To>(found);
}

}  // namespace torchtap::transparent::detail

// as<Holder>() returns the type that the holder calls through.
#ifdef TORCHTAP_EXACT_TYPES
#define ContainedType template TorchtapExact<>
#else
#define ContainedType template TorchtapSeen<>
#endif
#define dynamic_cast torchtap::transparent::detail::module_cast
#include_next <torch/nn/module.h>
#undef dynamic_cast
#undef ContainedType

#include <torch/nn/cloneable.h>
