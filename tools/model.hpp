#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "inputs.hpp"

namespace CLI {
class App;
}

/// TorchScript files, as the subcommands see them.
namespace torchtap::tools {

/// Loads a TorchScript file. Throws `c10::ValueError` for what is none, saying what it is instead and what
/// can be done.
torch::jit::Module load_model(const std::string& path, at::Device device = at::kCPU);

/// `--library`: loads shared libraries into the process, for the operators that they register.
void add_library_option(CLI::App& command);

/// Throws `c10::ValueError` that lists the methods there are.
torch::jit::Method find_method(const torch::jit::Module& model, const std::string& method);

/// The arguments for `method` that `batch` means: its entries in order, each as the type that is declared. A
/// method with a list as its only argument is also given a batch of tensors as that list. Tensors go to
/// `device`; where `requires_grad`, those of floating point ask for gradients.
///
/// Throws `c10::ValueError` that names the argument, its type and what there is for it.
std::vector<c10::IValue> to_arguments(const torch::jit::Module& model, const std::string& method,
                                      const Batch& batch, at::Device device, bool requires_grad);

}  // namespace torchtap::tools
