// Lists the parameters and buffers of modules.

#include <torch/nn/module.h>

#include <torchtap/model/extend/script_models.hpp>
#include <torchtap/model/held.hpp>

namespace torchtap::model {

std::vector<Held> held_by(const ModuleRef& module) {
  std::vector<Held> held;
  const auto hold = [&](const std::string& name, const at::Tensor& tensor, bool buffer) {
    if (tensor.defined()) held.push_back({name, tensor, buffer});
  };
  if (module.exported()) return held;
  if (module.scripted()) return extend::script_models().held_by(module.script());
  for (const auto& one : module.module().named_parameters(false)) hold(one.key(), one.value(), false);
  for (const auto& one : module.module().named_buffers(false)) hold(one.key(), one.value(), true);
  return held;
}

}  // namespace torchtap::model
