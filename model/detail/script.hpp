#pragma once

#include <string>
#include <torchtap/core/api.hpp>
#include <vector>

namespace torch::jit {
struct Function;
struct Module;
}  // namespace torch::jit

namespace torchtap::model::detail {

/// Whether a function of a TorchScript class is `method`, one of its overloads ("forward__0"), or one of the
/// copies that tracing makes of forward: "forward1" for the second call of a module.
TORCHTAP_API bool implements(const std::string& function, const std::string& method);

/// The functions of the module's class that are `method`.
TORCHTAP_API std::vector<torch::jit::Function*> functions_of(const torch::jit::Module& module,
                                                             const std::string& method);

}  // namespace torchtap::model::detail
