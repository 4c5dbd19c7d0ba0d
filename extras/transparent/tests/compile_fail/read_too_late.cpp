// A file whose precompiled header has read LibTorch's <torch/nn/pimpl.h>, which defines this macro, in place
// of that of torchtap::transparent.
#define TORCH_MODULE_IMPL(Name, ImplType)

#include <torch/nn/pimpl.h>
// says: torchtap::transparent: LibTorch's <torch/nn/pimpl.h> was read before
// says: REUSE_FROM
