#pragma once
#pragma GCC system_header

// Found before LibTorch's own header of this name in programs that link torchtap::transparent: passes LibTorch's
// on and has TORCH_MODULE define holders through which calls are seen. Nothing changes for LibTorch's own types.

#include <torch/arg.h>
#include <torch/csrc/utils/variadic.h>
#include <torch/detail/static.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <memory>
#include <type_traits>
#include <utility>

// Module::as<Holder>() shall give what the holder calls through, but ContainedType says what it contains. All
// holders get a second name for the former, next to ModuleHolder's one `private:`.
#define private                        \
 public:                               \
  using TorchtapContained = Contained; \
                                       \
 private
#include_next <torch/nn/pimpl.h>
#undef private

namespace torchtap::transparent {

/// Whether a file is one of LibTorch's headers of modules, whose types are part of its binary interface.
constexpr bool is_torch_header(const char* file) noexcept {
  constexpr char kFolder[] = "torch/nn/modules/";
  for (; *file != '\0'; ++file) {
    int i = 0;
    while (kFolder[i] != '\0' && file[i] == kFolder[i]) ++i;
    if (kFolder[i] == '\0') return true;
  }
  return false;
}

/// Defined in torchtap/transparent/holder.hpp.
template <class Impl>
struct HolderOf;

template <class Impl, bool of_torch>
struct ChosenHolder {
  using Type = torch::nn::ModuleHolder<Impl>;
};
template <class Impl>
struct ChosenHolder<Impl, false> : HolderOf<Impl> {};

}  // namespace torchtap::transparent

#undef TORCH_MODULE_IMPL
#define TORCH_MODULE_IMPL(Name, ImplType)                                                         \
  class Name : public torchtap::transparent::ChosenHolder<                                        \
                   ImplType, torchtap::transparent::is_torch_header(__FILE__)>::Type { /* NOLINT */ \
    using TorchtapHolder = torchtap::transparent::ChosenHolder<                                   \
        ImplType, torchtap::transparent::is_torch_header(__FILE__)>::Type;                        \
                                                                                                  \
   public:                                                                                        \
    using TorchtapHolder::TorchtapHolder;                                                         \
    using Impl [[maybe_unused]] = ImplType;                                                       \
  }
