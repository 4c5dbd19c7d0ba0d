#pragma once

/// Declares the TorchScript operators that run hooks, and the data that they read.

#include <ATen/core/jit_type.h>
#include <ATen/core/symbol.h>

#include <atomic>
#include <string>
#include <vector>

#include <torchtap/hooks/extend/door.hpp>

namespace torchtap::torchscript::detail {

/// The calls of a function as its hooks see them.
struct Sides {
  bool inputs = false;   ///< before forward; also where calls are only counted
  bool outputs = false;  ///< after forward

  bool any() const noexcept { return inputs || outputs; }
  bool operator==(const Sides& other) const noexcept {
    return inputs == other.inputs && outputs == other.outputs;
  }
  bool operator<(const Sides& other) const noexcept {
    return inputs != other.inputs ? other.inputs : outputs < other.outputs;
  }
  Sides operator|(const Sides& other) const noexcept {
    return {inputs || other.inputs, outputs || other.outputs};
  }
};

/// A function, for the operators compiled into it. Lives as long as the function.
struct ScriptFunction {
  std::atomic<int> method{0};        ///< see `method_number`; may change while the function has no hooks
  std::vector<c10::TypePtr> inputs;  ///< without self
  c10::TypePtr output;
};

/// A small, stable number for the name of a method.
int method_number(const std::string& method);
std::string method_name(int number);

/// Maps objects and methods to hooks; see `script_key`. Lives as long as the process.
hooks::extend::InterposedTable& script_table();

const void* script_key(const void* object, int method) noexcept;

/// The operators of hooks. Each takes the object at the end, or an object that leads to it. Nodes have a
/// `ScriptFunction` (`set_function`); if the object is found inside of others, nodes of `before`, `after` and
/// `enter` have `slots_attribute`, the slot in each, from the outermost one inwards.
struct ScriptOperators {
  c10::Symbol before;  ///< `(arguments…, self) -> (arguments…)`, where no hook sees outputs
  c10::Symbol after;   ///< `(value, self) -> value`, where no hook sees inputs
  /// If some hook sees both, the result of `enter` goes to `leave`.
  c10::Symbol enter;  ///< `(arguments…, self) -> (arguments…, call)`
  c10::Symbol leave;  ///< `(value, call) -> value`
  c10::Symbol slots_attribute;
};
/// Registers them on first use.
const ScriptOperators& script_operators();
/// Gives the node of an operator the address of its function, which lives as long as the function: needs no
/// look-up, and is never saved. It is an attribute that is printed as `<Tensor>`, so that equal graphs have
/// equal texts, which `torch.jit.trace` compares.
void set_function(torch::jit::Node& node, const ScriptFunction& function);

}  // namespace torchtap::torchscript::detail
