#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace torchtap::hooks::detail {

/// One attached callback, shared by its handle, the plans it stands in and the graphs that will report
/// gradients.
struct Hook {
  Kind kind = Kind::forward;
  bool is_scope = false;  ///< no callback: tells one forward of the root from the next
  bool on_root = false;   ///< of the root itself: each call is a forward of its own
  Callback callback;
  std::string path;
  std::string type;
  std::shared_ptr<Hook> scope;  ///< the root's scope hook; null if the root cannot be hooked
  const void* module = nullptr;
  std::atomic<bool> active{true};
  std::size_t counter;   ///< this hook's place in each thread's counters
  std::uint64_t serial;  ///< tells it from former users of that place

  Hook();
  ~Hook();
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;
};

/// Keeps a root's scope hook attached while somebody counts by it.
struct ScopeHold {
  std::shared_ptr<Hook> hook;

  explicit ScopeHold(std::shared_ptr<Hook> held) noexcept : hook(std::move(held)) {}
  ~ScopeHold();
  ScopeHold(const ScopeHold&) = delete;
  ScopeHold& operator=(const ScopeHold&) = delete;
};

/// The hooks of one module at one moment; never changed, replaced as a whole.
struct Plan : std::enable_shared_from_this<Plan> {
  /// Sorted by kind, and within a kind in order of attachment; scopes first.
  std::vector<std::shared_ptr<Hook>> hooks;
  std::size_t forward_pre_begin = 0, forward_pre_end = 0;  // forward_pre
  std::size_t forward_end = 0;  // forward and forward_output, as they were attached
  std::size_t backward_input_end = 0;
  bool sees_inputs = false;  ///< a hook needs the inputs once forward has returned
  bool wants_inputs = false, wants_outputs = false;

  explicit Plan(const std::vector<std::shared_ptr<Hook>>& attached);
  bool has_backward_input() const noexcept { return backward_input_end != forward_end; }
  bool has_backward_output() const noexcept { return hooks.size() != backward_input_end; }
};

struct ThreadState;

/// How LibTorch holds autograd nodes: a std::shared_ptr, in newer versions a c10::intrusive_ptr.
using NodePtr = std::decay_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

/// Whether there is anything to do around a call, as cheaply as it can be known: a hook that is attached at
/// this very moment in another thread may be missed.
inline bool is_idle(const Gate& gate) noexcept {
  return gate.plan.load(std::memory_order_relaxed) == nullptr;
}

/// Runs the hooks around one call. Stands on the stack of whoever calls the module's forward.
///
///     if (is_idle(gate)) return forward(arguments);
///     Call call(gate);
///     if (call.idle()) return forward(arguments);
///     call.before(inputs);  …  call.after(outputs);
///
/// An exception on the way needs nothing but the destructor.
class TORCHTAP_API Call {
 public:
  explicit Call(Gate& gate);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// True if the module has no hooks.
  bool idle() const noexcept { return plan_ == nullptr; }
  /// Whether `before` and `after` have anything to do.
  bool wants_inputs() const noexcept { return plan_->wants_inputs; }
  bool wants_outputs() const noexcept { return plan_->wants_outputs; }
  /// Leaves the gate and keeps the plan alive instead: for a call whose end may never come.
  void own_plan();

  /// Runs the forward-pre hooks; may replace the tensors that `inputs` refers to. Keep `inputs` until forward
  /// has returned.
  void before(CallTensors& inputs);
  /// Runs the forward hooks and hooks the outputs' gradients; may replace the tensors that `outputs` refers
  /// to.
  void after(CallTensors& outputs);

 private:
  struct Input {
    at::Tensor tensor;        // as the module got it
    at::Tensor original;      // as the caller gave it, where the module got an alias
    NodePtr node, base_node;  // of `tensor` and of what `original` is a view of
  };

  void end() noexcept;
  void leave() noexcept;
  void fire(std::size_t begin, std::size_t end, CallTensors* inputs, CallTensors* outputs);
  void keep_inputs(CallTensors& inputs);
  void alias_inputs(CallTensors& inputs);
  void follow_inplace(const Input& input, std::int64_t slot);
  void hook_outputs(CallTensors& outputs);
  bool entered_as_is(const at::Tensor& output) const;

  Gate* gate_;
  const Plan* plan_ = nullptr;
  std::shared_ptr<const Plan> owned_;
  ThreadState* state_ = nullptr;
  c10::SmallVector<Input, 1> inputs_;
  const CallTensors* unknown_inputs_ =
      nullptr;                                 // the inputs, if there are values of unknown types among them
  c10::SmallVector<std::int64_t, 4> indices_;  // the call index for each hook of the plan, fixed on entry
};

}  // namespace torchtap::hooks::detail
