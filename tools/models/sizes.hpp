#pragma once

// Counts parameters, buffers and their bytes.

#include <torch/csrc/jit/api/module.h>

#include <cstdint>

namespace torchtap::tools {

/// The parameters and buffers of a module, including its submodules. A shared tensor counts once.
struct Sizes {
  std::int64_t parameters = 0;
  std::int64_t trainable = 0;  ///< elements of parameters that require gradients
  std::int64_t buffers = 0;    ///< elements
  std::int64_t parameter_bytes = 0;
  std::int64_t bytes = 0;  ///< of parameters and buffers
};

/// Quantized modules keep their weights packed in an object that is not a parameter. These count as
/// parameters, with the bytes of the quantized tensors that were packed.
Sizes sizes_of(const torch::jit::Module& module);

}  // namespace torchtap::tools
