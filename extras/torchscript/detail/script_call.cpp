// Defines the TorchScript operators that run hooks, and registers them with LibTorch.

#include <ATen/Functions.h>
#include <ATen/TracerMode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/hooks/extend/door.hpp>
#include <torchtap/hooks/extend/hook_point.hpp>
#include <torchtap/hooks/extend/ivalue.hpp>
#include <torchtap/torchscript/detail/script_call.hpp>

namespace torchtap::torchscript::detail {
namespace {

using c10::IValue;
using hooks::extend::Call;
using hooks::extend::CallTensors;
using hooks::extend::collect;
using hooks::extend::Gate;
using hooks::extend::InterposedEntry;
using hooks::extend::InterposedTable;
using hooks::extend::is_idle;
using hooks::extend::OneSide;
using torch::jit::Stack;

/// The names of all methods ever hooked, by number.
struct Methods {
  std::mutex mutex;
  std::vector<std::string> names{"forward"};

  static Methods& instance() {
    static auto* methods = new Methods;  // models may outlive static objects
    return *methods;
  }
};

/// One call from `enter` to `leave`, which may run in different threads.
struct ScriptCall final : torch::CustomClassHolder {
  ScriptCall(Gate& gate, const ScriptFunction& of) : call(gate), function(of) {}

  Call call;
  const ScriptFunction& function;
};

IValue pop(Stack& stack) {
  IValue value = std::move(stack.back());
  stack.pop_back();
  return value;
}

/// The facts that the operator at one place in the code has.
struct CallSite {
  const ScriptFunction& function;
  std::vector<std::int64_t> slots;
};

/// The hooks of the object, if it has any; `key` is then its `script_key`.
InterposedEntry* hooks_of(const IValue& leads_to_it, const CallSite& site, const void*& key) {
  const IValue* self = &leads_to_it;
  for (const std::int64_t slot : site.slots) {
    self = &self->toObjectRef().slots()[static_cast<std::size_t>(slot)];
  }
  key = script_key(&self->toObjectRef(), site.function.method.load(std::memory_order_relaxed));
  InterposedEntry* entry = script_table().find(key);
  return entry == nullptr || is_idle(entry->gate) ? nullptr : entry;
}

void collect_inputs(Stack& stack, const ScriptFunction& function, CallTensors& inputs) {
  const std::size_t count = function.inputs.size();
  for (std::size_t i = 0; i < count; ++i) {
    collect(stack[stack.size() - count + i], *function.inputs[i], inputs);
  }
}

/// Calls `f` with the hooks of the object on top of the stack, which is removed, if it has any.
template <class F>
void with_hooks(Stack& stack, const CallSite& site, const F& f) {
  const IValue self = pop(stack);
  const void* key = nullptr;
  InterposedEntry* entry = hooks_of(self, site, key);
  if (entry == nullptr) return;
  OneSide hooks(entry->gate);
  if (!hooks.idle() && entry->module.load() == key) f(hooks);
}

void before(Stack& stack, const CallSite& site) {
  with_hooks(stack, site, [&](OneSide& hooks) {
    CallTensors inputs;
    if (hooks.wants_inputs()) collect_inputs(stack, site.function, inputs);
    hooks.before(inputs);
  });
}

void after(Stack& stack, const CallSite& site) {
  with_hooks(stack, site, [&](OneSide& hooks) {
    CallTensors outputs;
    collect(stack.back(), *site.function.output, outputs);
    hooks.after(outputs);
  });
}

/// Returns None if there is nothing to do when the function returns.
IValue run_before(Stack& stack, const IValue& self, const CallSite& site) {
  const void* key = nullptr;
  InterposedEntry* entry = hooks_of(self, site, key);
  if (entry == nullptr) return {};
  auto running = c10::make_intrusive<ScriptCall>(entry->gate, site.function);
  Call& call = running->call;
  if (call.idle() || entry->module.load() != key) return {};
  call.own_plan();
  if (call.wants_inputs()) {
    CallTensors inputs;
    collect_inputs(stack, site.function, inputs);
    call.before(inputs);
  }
  return call.wants_outputs() ? IValue::make_capsule(std::move(running)) : IValue();
}

void enter(Stack& stack, const CallSite& site) {
  const IValue self = pop(stack);
  stack.push_back(run_before(stack, self, site));
}

void leave(Stack& stack, const CallSite& /*site*/) {
  const IValue call = pop(stack);
  if (!call.isCapsule()) return;
  const auto holder = call.toCapsule();
  auto& running = static_cast<ScriptCall&>(*holder);
  CallTensors outputs;
  collect(stack.back(), *running.function.output, outputs);
  running.call.after(outputs);
}

c10::Symbol function_attribute() {
  static const auto symbol = c10::Symbol::attr("torchtap_function");
  return symbol;
}
c10::Symbol slots_attribute() {
  static const auto symbol = c10::Symbol::attr("torchtap_slots");
  return symbol;
}

template <void (*run)(Stack&, const CallSite&)>
c10::Symbol registered(const char* name) {
  const auto symbol = c10::Symbol::fromQualString(name);
  hooks::extend::check_copy(!torch::jit::getAllOperatorsFor(symbol).empty(), "TorchScript modules");
  const auto made_for = [](const torch::jit::Node* node) -> torch::jit::Operation {
    const ScriptFunction* function = nullptr;
    std::memcpy(&function, node->t(function_attribute()).data_ptr(), sizeof function);
    CallSite known{*function, {}};
    if (node->hasAttribute(slots_attribute())) known.slots = node->is(slots_attribute());
    return [known](Stack& stack) { run(stack, known); };
  };
  // Conservative: LibTorch assumes that the operator may read and change anything, and neither moves nor
  // removes it.
  torch::jit::registerOperator(torch::jit::Operator(symbol, made_for, c10::AliasAnalysisKind::CONSERVATIVE));
  return symbol;
}

}  // namespace

hooks::extend::InterposedTable& script_table() {
  static auto* table = new InterposedTable;  // models may outlive static objects
  return *table;
}

int method_number(const std::string& method) {
  // Each name has its own address inside the object.
  constexpr std::size_t kMost = sizeof(c10::ivalue::Object);
  Methods& methods = Methods::instance();
  const std::lock_guard lock(methods.mutex);
  const auto found = std::find(methods.names.begin(), methods.names.end(), method);
  if (found != methods.names.end()) return static_cast<int>(found - methods.names.begin());
  TORCH_CHECK_NOT_IMPLEMENTED(methods.names.size() < kMost, "hooks::attach: method \"", method,
                              "\" cannot be hooked: one process can hook TorchScript methods of at most ",
                              kMost, " different names.");
  methods.names.push_back(method);
  return static_cast<int>(methods.names.size()) - 1;
}

std::string method_name(int number) {
  Methods& methods = Methods::instance();
  const std::lock_guard lock(methods.mutex);
  return methods.names.at(static_cast<std::size_t>(number));
}

const void* script_key(const void* object, int method) noexcept {
  return static_cast<const char*>(object) + method;
}

void set_function(torch::jit::Node& node, const ScriptFunction& function) {
  const base::RecordingMode quiet;
  const at::tracer::impl::NoTracerDispatchMode untraced;
  const ScriptFunction* const address = &function;
  constexpr std::int64_t kMore = 16;  // than LibTorch prints the elements of
  const at::Tensor bytes = at::zeros({kMore}, at::kByte);
  std::memcpy(bytes.data_ptr(), &address, sizeof address);
  node.t_(function_attribute(), bytes);
}

const ScriptOperators& script_operators() {
  static const ScriptOperators operators{
      registered<before>("torchtap::before"), registered<after>("torchtap::after"),
      registered<enter>("torchtap::enter"), registered<leave>("torchtap::leave"), slots_attribute()};
  return operators;
}

}  // namespace torchtap::torchscript::detail
