#pragma once
#pragma GCC system_header

// Found before LibTorch's header of this name in programs that link torchtap::transparent. Renames LibTorch's
// ModuleHolder and puts a ModuleHolder that derives from it in its place. Objects, types and everything that
// a holder returns stay LibTorch's; only `->`, `()` and Module::as<Holder>() go through a view of the module
// that runs hooks around forward. Where TORCHTAP_EXACT_TYPES is defined, as<Holder>() is LibTorch's, too.

#ifdef TORCH_MODULE_IMPL
#error \
    "torchtap::transparent: LibTorch's <torch/nn/pimpl.h> was read before the header of torchtap::transparent that \
takes its place. Is there a precompiled header of a CMake target that does not link torchtap::transparent (REUSE_FROM)? \
Link torchtap::transparent to that target, too, or give this one a precompiled header of its own."
#endif

// Everything that LibTorch's header includes, before the renaming.
#include <torch/arg.h>
#include <torch/csrc/utils/variadic.h>
#include <torch/detail/static.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <memory>
#include <type_traits>
#include <utility>

#define ModuleHolder TorchtapLibTorchHolder
#include_next <torch/nn/pimpl.h>
#undef ModuleHolder

namespace torchtap::transparent::detail {

/// The type through which a holder calls its module; `Impl` itself if its calls cannot be followed. Defined
/// in torchtap/transparent/detail/holder.hpp.
template <class Impl, class = void>
struct SeenOf;

/// Takes over a module that a holder has made with `new`. Defined in the same file.
template <class Impl>
std::shared_ptr<Impl> take(Impl* made);
/// Makes a module as `std::make_shared` does. Defined in the same file.
template <class Impl>
std::shared_ptr<Impl> make_default();
/// Takes over a module that was made elsewhere. Defined in the same file.
template <class Impl>
std::shared_ptr<Impl> adopt(std::shared_ptr<Impl> module);

}  // namespace torchtap::transparent::detail

namespace torch::nn {

template <typename Contained>
class ModuleHolder : public TorchtapLibTorchHolder<Contained> {
  using TorchtapBase = TorchtapLibTorchHolder<Contained>;

 public:
  // A template, because Contained may be incomplete where a holder of it is declared.
  template <class Impl = Contained>
  using TorchtapSeen = typename torchtap::transparent::detail::SeenOf<Impl>::Type;

  template <class Impl = Contained>
  using TorchtapExact = Impl;

  ModuleHolder() : TorchtapBase(torchtap::transparent::detail::make_default<Contained>()) {
    static_assert(
        std::is_default_constructible_v<Contained>,
        "You are trying to default construct a module which has no default constructor. Use = nullptr to "
        "give it the empty state (e.g. `Linear linear = nullptr;` instead of `Linear linear;`).");
  }
  /* implicit */ ModuleHolder(std::nullptr_t) : TorchtapBase(nullptr) {}
  /* implicit */ ModuleHolder(std::shared_ptr<Contained> module)
      : TorchtapBase(torchtap::transparent::detail::adopt<Contained>(std::move(module))) {}
  // `new` is called here, because a module may have made torch::nn::ModuleHolder its friend.
  template <typename Head, typename... Tail,
            typename = std::enable_if_t<!(torch::detail::is_module_holder_of<Head, Contained>::value &&
                                          sizeof...(Tail) == 0)>>
  explicit ModuleHolder(Head&& head, Tail&&... tail)
      : TorchtapBase(torchtap::transparent::detail::take<Contained>(
            new Contained(std::forward<Head>(head), std::forward<Tail>(tail)...))) {}

  template <class Impl = Contained>
  TorchtapSeen<Impl>* operator->() {
    return static_cast<TorchtapSeen<Impl>*>(this->get());
  }
  template <class Impl = Contained>
  const TorchtapSeen<Impl>* operator->() const {
    return static_cast<const TorchtapSeen<Impl>*>(this->get());
  }

  template <typename... Args>
  auto operator()(Args&&... args) -> torch::detail::return_type_of_forward_t<Contained, Args...> {
    return static_cast<TorchtapSeen<>*>(this->get())->forward(std::forward<Args>(args)...);
  }
};

}  // namespace torch::nn
