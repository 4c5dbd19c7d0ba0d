#pragma once

/// Drop-in names: `torchtap::nn::Linear` is `torch::nn::Linear` with hooks, for modules that are called
/// directly from a forward of the user's own. Constructors, options, options' defaults, parameters and state
/// are those of LibTorch's type, which the hookable one derives from.

#include <torch/nn.h>

#include <torchtap/hooks/detail/builtins.hpp>
#include <torchtap/hooks/hooked.hpp>

namespace torchtap::nn {

// Modules whose holders offer more than TORCH_MODULE gives (Embedding::from_pretrained) stay with their own
// static functions: `torch::nn::Embedding::from_pretrained` makes the plain type.
#define TORCHTAP_DROP_IN(Name) TORCHTAP_MODULE_IMPL(Name, torch::nn::Name##Impl);
#define TORCHTAP_DROP_IN_TEMPLATE(Template, D, Name) TORCHTAP_DROP_IN(Name)
TORCHTAP_BUILTINS(TORCHTAP_DROP_IN, TORCHTAP_DROP_IN_TEMPLATE)
#undef TORCHTAP_DROP_IN_TEMPLATE
#undef TORCHTAP_DROP_IN

using torch::nn::Sequential;

}  // namespace torchtap::nn
