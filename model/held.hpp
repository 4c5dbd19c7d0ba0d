#pragma once

/// Lists the tensors that a module holds: its parameters and buffers.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::model {

/// A parameter or buffer.
struct Held {
  std::string name;     ///< in its module
  at::Tensor tensor;    ///< the tensor itself
  bool buffer = false;  ///< whether it is a buffer
};

/// The parameters, and behind them the buffers, of the module itself, without its submodules. Undefined
/// tensors are left out. A module of an exported model has no parameters or buffers here.
TORCHTAP_API std::vector<Held> held_by(const ModuleRef& module);

}  // namespace torchtap::model
