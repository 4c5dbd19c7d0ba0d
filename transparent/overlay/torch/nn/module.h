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

namespace torchtap::transparent {

template <class T, class = void>
struct SeenAs {
  using Type = T;
};
template <class T>
struct SeenAs<T, std::void_t<typename T::TorchtapSeenAs>> {
  using Type = typename T::TorchtapSeenAs;
  static constexpr auto kInstantiate = &T::torchtap_instantiate;
};

/// dynamic_cast to what an object really is, then to how it is seen.
template <class To, class From>
To module_cast(From* module) noexcept {
  using Target = std::remove_pointer_t<To>;
  using Plain = typename SeenAs<std::remove_cv_t<Target>>::Type;
  if constexpr (std::is_const_v<Target>) {
    return static_cast<To>(dynamic_cast<const Plain*>(module));
  } else {
    return static_cast<To>(dynamic_cast<Plain*>(module));
  }
}

}  // namespace torchtap::transparent

#define ContainedType TorchtapContained
#define dynamic_cast torchtap::transparent::module_cast
#include_next <torch/nn/module.h>
#undef dynamic_cast
#undef ContainedType

#include <torch/nn/cloneable.h>
