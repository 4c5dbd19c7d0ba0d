// Lists the parameters and buffers of `torch::nn` and TorchScript modules.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <torchtap/model/held.hpp>

namespace torchtap::model {

std::vector<Held> held_by(const ModuleRef& module) {
  std::vector<Held> held;
  const auto hold = [&](const std::string& name, const at::Tensor& tensor, bool buffer) {
    if (tensor.defined()) held.push_back({name, tensor, buffer});
  };
  if (module.exported()) return held;
  if (module.scripted()) {
    for (const auto& one : module.script().named_parameters(false)) hold(one.name, one.value, false);
    for (const auto& one : module.script().named_buffers(false)) hold(one.name, one.value, true);
  } else {
    for (const auto& one : module.module().named_parameters(false)) hold(one.key(), one.value(), false);
    for (const auto& one : module.module().named_buffers(false)) hold(one.key(), one.value(), true);
  }
  return held;
}

}  // namespace torchtap::model
