#pragma once

/// Finds the functions of a TorchScript class that implement a method, and whether it has hooks.

#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torch::jit {
struct Function;
struct Module;
}  // namespace torch::jit

namespace torchtap::model::extend {

/// Whether a function of a TorchScript class implements `method`: it has that name, is an overload
/// ("forward__0"), or is a copy of forward that tracing made ("forward1" for the second call of a module).
TORCHTAP_API bool implements(const std::string& function, const std::string& method);

/// The functions of the module's class that implement `method`.
TORCHTAP_API std::vector<torch::jit::Function*> functions_of(const torch::jit::Module& module,
                                                             const std::string& method);

/// Whether hooks were compiled into the file (`register_forward_hook` before `torch.jit.script`). Those who
/// call the module call these hooks around its `forward`, so they are no part of that function.
TORCHTAP_API bool has_compiled_hooks(const torch::jit::Module& module);

}  // namespace torchtap::model::extend
