#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>

namespace torchtap::tools {

/// What a module holds, its submodules included. A tensor that stands in several places counts once.
struct Sizes {
  std::int64_t parameters = 0;
  std::int64_t trainable = 0;  ///< of them, those that ask for gradients
  std::int64_t buffers = 0;    ///< elements, as the others
  std::int64_t parameter_bytes = 0;
  std::int64_t bytes = 0;  ///< of parameters and buffers
};

/// Quantized modules keep their weights packed, in an object that is no parameter: these count as parameters,
/// and as the bytes of the quantized tensors that they were packed from.
Sizes sizes_of(const torch::jit::Module& module);

}  // namespace torchtap::tools
