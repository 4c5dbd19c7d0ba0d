#pragma once

/// Defines `CallGradients`, which has the gradients of one call's inputs and outputs reported to its hooks.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>

#include <torchtap/hooks/detail/node_hooks.hpp>
#include <torchtap/hooks/detail/plan.hpp>
#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks::detail {

class Call;

/// The gradients of one call that has hooks for them: puts hooks on the nodes of its inputs and outputs.
class CallGradients {
 public:
  explicit CallGradients(Call& call) noexcept;
  ~CallGradients();
  CallGradients(const CallGradients&) = delete;
  CallGradients& operator=(const CallGradients&) = delete;

  /// Gives the module an alias of each input: the alias's gradient flowed through this module, without other
  /// uses of the same tensor. A view rather than a custom function, so that autograd records the module's
  /// in-place operations as it would without hooks.
  void alias_inputs(CallTensors& inputs);
  /// Gives the module the caller's tensors in those slots in which an argument cannot take up others. False
  /// if they have no aliases.
  bool take_back_aliases(CallTensors& inputs, const std::string& why);
  /// Call it when forward has returned: finds where the gradients of inputs arrive that it changed in place,
  /// and gives the caller's tensors what it set on the aliases.
  void end_inputs();
  /// Hooks the outputs. An output stays what the module returned, also if that is its input or stands in two
  /// slots: the gradient is that of the tensor, with all its uses.
  void hook_outputs(const CallTensors& outputs);

 private:
  /// An input of which the module got an alias; empty for others.
  struct Input {
    at::Tensor tensor;                                 // the alias
    at::Tensor original;                               // as passed by the caller
    NodePtr node, base_node;                           // of `tensor` and of the base of `original`
    std::uint32_t base_output = 0;                     // the base's place among the outputs of its node
    torch::autograd::FunctionPreHook* hook = nullptr;  // on `node`, which owns it
    at::Tensor gradient;  // what the alias shows as the accumulated gradient of `original`
  };

  GradientHooks input_hooks(std::int64_t slot) const;
  GradientHooks hooks_of(std::size_t begin, std::size_t end, std::int64_t slot) const;
  /// Tells hooks that they will not hear of the gradient of a slot.
  void leave_out_input(std::int64_t slot, const std::string& why);
  void leave_out(std::size_t begin, std::size_t end, std::int64_t slot, const std::string& why);
  Input alias_of(const at::Tensor& input, std::int64_t slot) const;
  void follow_inplace(const Input& input, std::int64_t slot);
  static void carry_over(const Input& input);

  Call& call_;
  const Plan& plan_;
  c10::SmallVector<Input, 1> inputs_;
};

}  // namespace torchtap::hooks::detail
