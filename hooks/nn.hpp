#pragma once

/// Drop-in names: `torchtap::nn::Linear` is `torch::nn::Linear` with hooks, for modules that a user-written
/// forward calls directly. The type derives from LibTorch's, so constructors, options, their defaults,
/// parameters and buffers are the same.

#include <torch/nn.h>

#include <torchtap/hooks/extend/builtins.hpp>
#include <torchtap/hooks/hooked.hpp>

namespace torchtap::nn {

// Static functions of LibTorch's holders are not repeated: `torch::nn::Embedding::from_pretrained` makes the
// plain type.
#define TORCHTAP_DROP_IN(Name) TORCHTAP_MODULE_IMPL(Name, torch::nn::Name##Impl);
#define TORCHTAP_DROP_IN_TEMPLATE(Template, D, Name) TORCHTAP_DROP_IN(Name)
TORCHTAP_BUILTINS(TORCHTAP_DROP_IN, TORCHTAP_DROP_IN_TEMPLATE)
#undef TORCHTAP_DROP_IN_TEMPLATE
#undef TORCHTAP_DROP_IN

using torch::nn::Sequential;

}  // namespace torchtap::nn
