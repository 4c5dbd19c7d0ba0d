#pragma once

// The body of each `forward` that replaces LibTorch's: runs hooks around the original.

#include <torch/nn/cloneable.h>

#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>

#include <torchtap/hooks/extend/intercepted_call.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/transparent/extend/member_code.hpp>

namespace torchtap::transparent::detail {

using extend::code_of;
using extend::member_at;

/// The symbol that `code` defines in this process; null if there is none.
const char* symbol_of(const void* code);

/// Why no call of LibTorch's modules is seen in this program; empty if some are.
std::string why_blind();

/// LibTorch's definition of the function that `ours` defines: the next one in the dynamic linker's order.
/// Throws `c10::NotImplementedError` if there is none.
const void* next_definition(const void* ours);

/// Calls `original` with the hooks of `self` around it. A call of the base by a type that derives from
/// LibTorch's is a part of its own forward; a call by a holder of the base is the forward.
template <class R, class Impl, class Original, class... Args>
R run(Impl& self, Original&& original, Args&&... arguments) {
  auto* entry = hooks::extend::find_interposed(self);
  const torch::nn::Module& module = self;
  if (entry == nullptr || (typeid(module) != typeid(Impl) && hooks::extend::Call::is_inside(&module))) {
    return original(std::forward<Args>(arguments)...);
  }
  return hooks::extend::run_hooked<R, 0>(
      entry->gate, [&] { return entry->belongs_to(self); },
      [&](auto&&... given) -> R { return original(std::forward<decltype(given)>(given)...); },
      std::forward<Args>(arguments)...);
}

/// Body of an interposed `forward`.
template <auto forward>
struct Intercept;
template <class R, class Impl, class... Args, R (Impl::*forward)(Args...)>
struct Intercept<forward> {
  using Result = R;
  template <std::size_t i>
  using Parameter = std::tuple_element_t<i, std::tuple<Args...>>;

  static R call(Impl& self, Args... arguments) {
    using Member = R (Impl::*)(Args...);
    static const auto original = member_at<Member>(next_definition(code_of(forward)));
    return run<R>(
        self, [&](Args... given) -> R { return (self.*original)(std::forward<Args>(given)...); },
        std::forward<Args>(arguments)...);
  }
};

}  // namespace torchtap::transparent::detail
