#pragma once
#pragma GCC system_header

// See pimpl.h beside this file. What Module::as<Holder>() returns is what a holder calls through.

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

namespace torchtap::transparent::detail {

/// The type of the objects that are seen as `T`: `T` itself, or the `Impl` of a view.
template <class T, class = void>
struct PlainOf {
  using Type = T;
};
template <class T>
struct PlainOf<T, std::void_t<decltype(T::torchtap_is_view)>> {
  using Type = typename T::TorchtapImpl;
};

/// dynamic_cast to the type of the object, then to the view of it that `To` asks for.
template <class To, class From>
To module_cast(From* module) noexcept {
  using Target = std::remove_pointer_t<To>;
  using Plain = typename PlainOf<std::remove_cv_t<Target>>::Type;
  if constexpr (std::is_const_v<Target>) {
    return static_cast<To>(dynamic_cast<const Plain*>(module));
  } else {
    return static_cast<To>(dynamic_cast<Plain*>(module));
  }
}

}  // namespace torchtap::transparent::detail

// as<Holder>() returns what the holder calls through.
#define ContainedType template TorchtapSeen<>
#define dynamic_cast torchtap::transparent::detail::module_cast
#include_next <torch/nn/module.h>
#undef dynamic_cast
#undef ContainedType

#include <torch/nn/cloneable.h>
