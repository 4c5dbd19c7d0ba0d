#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "inputs.hpp"

namespace CLI {
class App;
}

/// Loads and calls TorchScript files for the subcommands.
namespace torchtap::tools {

/// Loads a TorchScript file. Throws `c10::ValueError` for other files; the message names the kind of the file
/// and the remedy.
torch::jit::Module load_model(const std::string& path, at::Device device = at::kCPU);

/// Adds `--library`: loads shared libraries into the process for the operators that they register.
void add_library_option(CLI::App& command);

/// Throws `c10::ValueError` that lists the existing methods.
torch::jit::Method find_method(const torch::jit::Module& model, const std::string& method);

/// Converts `batch` into the arguments of `method`: its entries in order, each to the declared type. If the
/// method takes only one list, a batch of tensors is also accepted as that list. Moves tensors to `device`;
/// floating-point tensors require gradients if `requires_grad`.
///
/// Throws `c10::ValueError` that names the argument, its type and the value given.
std::vector<c10::IValue> to_arguments(const torch::jit::Module& model, const std::string& method,
                                      const Batch& batch, at::Device device, bool requires_grad);

/// Arguments of one call, as a model may write to them.
std::vector<c10::IValue> copies(const std::vector<c10::IValue>& arguments);

}  // namespace torchtap::tools
