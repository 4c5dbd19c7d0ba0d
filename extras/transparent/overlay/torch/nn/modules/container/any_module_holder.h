#pragma once
#pragma GCC system_header

// See pimpl.h in torch/nn. An AnyModule, and so a Sequential, calls its module as the module's holder does.

#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/pimpl.h>

// Followed by a bracket only where LibTorch's header calls the module: AnyValue(module_->forward(…)).
#define AnyValue(...)                                                              \
  [&](typename torchtap::transparent::detail::SeenOf<ModuleType>::Type* module_) { \
    return AnyValue(__VA_ARGS__);                                                  \
  }(static_cast<typename torchtap::transparent::detail::SeenOf<ModuleType>::Type*>(module_.get()))
#include_next <torch/nn/modules/container/any_module_holder.h>
#undef AnyValue
