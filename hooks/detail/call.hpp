#pragma once

/// Defines hooks, the plan of a module's hooks, and `Call`, which runs them around one forward.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>

namespace torch::autograd {
struct FunctionPreHook;
}

namespace torchtap::hooks::detail {

struct ScopeHold;

/// Does not keep the tensor alive.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// One attached callback. Shared by its handle, the plans that contain it and the graphs that will report
/// gradients.
struct Hook {
  Kind kind = Kind::forward;
  bool is_scope = false;  ///< no callback: counts the forwards of the root
  bool on_root = false;   ///< attached to the root: each call is a new forward
  Callback callback;
  LeftOut left_out;  ///< empty if nobody asks
  std::string path;
  std::string type;
  std::shared_ptr<Hook> scope;            ///< the root's scope hook; null if the root cannot be hooked
  std::shared_ptr<ScopeHold> kept_scope;  ///< of a handle that was released
  const void* module = nullptr;
  std::optional<WeakTensor> leaf;  ///< the parameter that it was put on instead of a module
  std::atomic<bool> active{true};
  std::size_t counter;   ///< index into each thread's counters
  std::uint64_t serial;  ///< distinguishes it from former users of that index

  Hook();
  ~Hook();
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;
};

/// Keeps a root's scope hook attached while other hooks count by it.
struct ScopeHold {
  std::shared_ptr<Hook> hook;

  explicit ScopeHold(std::shared_ptr<Hook> held) noexcept : hook(std::move(held)) {}
  ~ScopeHold();
  ScopeHold(const ScopeHold&) = delete;
  ScopeHold& operator=(const ScopeHold&) = delete;
};

/// An immutable list of one module's hooks; replaced as a whole.
struct Plan : std::enable_shared_from_this<Plan> {
  /// Scopes first, then sorted by kind and by place.
  std::vector<std::shared_ptr<Hook>> hooks;
  std::size_t forward_pre_begin = 0, forward_pre_end = 0;  // forward_pre
  std::size_t forward_end = 0;                             // forward and forward_output, by place
  std::size_t backward_input_end = 0;
  bool sees_inputs = false;  ///< a hook needs the inputs after forward
  bool wants_inputs = false, wants_outputs = false;

  explicit Plan(const std::vector<std::shared_ptr<Hook>>& attached);
  bool has_backward_input() const noexcept { return backward_input_end != forward_end; }
  bool has_backward_output() const noexcept { return hooks.size() != backward_input_end; }
};

struct ThreadState;

/// LibTorch's pointer to an autograd node: a std::shared_ptr, in newer versions a c10::intrusive_ptr.
using NodePtr = std::decay_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

/// Whether a call has no hooks to run. One relaxed load: may miss a hook that another thread attaches at this
/// moment.
inline bool is_idle(const Gate& gate) noexcept {
  return gate.plan.load(std::memory_order_relaxed) == nullptr;
}

/// Runs the hooks around one call. Create one on the stack around each forward.
///
///     if (is_idle(gate)) return forward(arguments);
///     Call call(gate);
///     if (call.idle()) return forward(arguments);
///     call.before(inputs);  …  call.after(outputs);
///
/// If forward throws, the destructor does the rest.
class TORCHTAP_API Call {
 public:
  explicit Call(Gate& gate);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Whether this thread is in the forward of `module`, with its hooks around it.
  static bool is_inside(const void* module) noexcept;
  /// Says that what is called next is the same call of the module.
  void hand_on() noexcept { hands_on_ = true; }
  /// Whether a holder has handed on the call of `module` that begins here, so that its hooks run already.
  static bool hands_on(const void* module) noexcept;

  /// Whether the module has no hooks.
  bool idle() const noexcept { return plan_ == nullptr; }
  /// Whether `before` and `after` have hooks to run.
  bool wants_inputs() const noexcept { return plan_->wants_inputs; }
  bool wants_outputs() const noexcept { return plan_->wants_outputs; }
  /// Leaves the gate and keeps the plan alive instead. For calls that may never end.
  void own_plan();

  /// Runs the forward-pre hooks; may replace the tensors that `inputs` refers to. Keep `inputs` until forward
  /// returns.
  void before(CallTensors& inputs);
  /// Runs the forward hooks and attaches gradient hooks to the outputs; may replace the tensors that
  /// `outputs` refers to.
  void after(CallTensors& outputs);
  /// The same where the memory of the inputs that `before` was given may have been used again: `inputs` are
  /// those as they are now.
  void after(CallTensors& outputs, CallTensors& inputs);

 private:
  struct Input {
    at::Tensor tensor;                                 // as passed to the module
    at::Tensor original;                               // as passed by the caller, if the module got an alias
    NodePtr node, base_node;                           // of `tensor` and of the base of `original`
    std::uint32_t base_output = 0;                     // the base's place among the outputs of its node
    torch::autograd::FunctionPreHook* hook = nullptr;  // on `node`, which owns it
    at::Tensor gradient;  // what the alias shows as the accumulated gradient of `original`
  };

  void end() noexcept;
  void leave() noexcept;
  void fire(std::size_t begin, std::size_t end, CallTensors* inputs, CallTensors* outputs);
  /// Tells the hooks from `begin` to `end` that they will not hear of the gradient of a slot.
  void leave_out(std::size_t begin, std::size_t end, std::int64_t slot, const std::string& why);
  void leave_out_input(std::int64_t slot, const std::string& why) {
    leave_out(plan_->forward_end, plan_->backward_input_end, slot, why);
  }
  void put_back_inputs(CallTensors& inputs);
  bool take_back_aliases(CallTensors& inputs, const std::string& why);
  void keep_inputs(CallTensors& inputs);
  void alias_inputs(CallTensors& inputs);
  void follow_inplace(const Input& input, std::int64_t slot);
  static void carry_over(const Input& input);
  void hook_outputs(const CallTensors& outputs);

  Gate* gate_;
  const Plan* plan_ = nullptr;
  std::shared_ptr<const Plan> owned_;
  ThreadState* state_ = nullptr;
  Call* outer_ = nullptr;  // of this thread
  bool firing_ = false;    // hooks are running, and not forward
  bool hands_on_ = false;  // see `hand_on`
  c10::SmallVector<Input, 1> inputs_;
  const CallTensors* unknown_inputs_ = nullptr;  // the inputs, if they contain values of unknown types
  c10::SmallVector<std::int64_t, 4> indices_;    // per hook of the plan, fixed on entry
};

}  // namespace torchtap::hooks::detail
