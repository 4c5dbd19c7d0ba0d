#pragma once

/// Finds the functions of a TorchScript class that implement a method.

#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torch::jit {
struct Function;
struct Module;
}  // namespace torch::jit

namespace torchtap::torchscript {

/// Whether a function of a TorchScript class implements `method`: it has that name, is an overload
/// ("forward__0"), or is a copy of forward that tracing made ("forward1" for the second call of a module).
TORCHTAP_API bool implements(const std::string& function, const std::string& method);

/// The functions of the module's class that implement `method`.
TORCHTAP_API std::vector<torch::jit::Function*> functions_of(const torch::jit::Module& module,
                                                             const std::string& method);

}  // namespace torchtap::torchscript
