#pragma once

// Defines `TORCHTAP_MODULE`, which replaces `TORCH_MODULE` for modules that can be hooked.

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <torchtap/hooks/detail/hooked.hpp>

/// Use in place of `TORCH_MODULE_IMPL(Name, ImplType)`.
#define TORCHTAP_MODULE_IMPL(Name, ImplType)                                                    \
  class Name : public torch::nn::ModuleHolder<torchtap::hooks::Hooked<ImplType>> { /* NOLINT */ \
   public:                                                                                      \
    using torch::nn::ModuleHolder<torchtap::hooks::Hooked<ImplType>>::ModuleHolder;             \
    using Impl [[maybe_unused]] = torchtap::hooks::Hooked<ImplType>;                            \
  }

/// Use in place of `TORCH_MODULE(Name)`: defines the holder `Name` of a `NameImpl` that can be hooked
/// wherever it is called.
#define TORCHTAP_MODULE(Name) TORCHTAP_MODULE_IMPL(Name, Name##Impl)
