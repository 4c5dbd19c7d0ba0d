#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <mutex>
#include <set>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/interposed.hpp>
#include <torchtap/hooks/detail/script_call.hpp>
#include <torchtap/hooks/detail/script_values.hpp>

namespace torchtap::hooks::detail {
namespace {

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

/// Returns None if there is nothing to do when the function returns.
c10::IValue run_before(Stack& stack, std::size_t arguments) {
  c10::IValue* const self = &stack[stack.size() - arguments - 2];
  const auto& function = *reinterpret_cast<const ScriptFunction*>(self[1].toInt());
  const void* key = script_key(&self->toObjectRef(), function.method.load(std::memory_order_relaxed));
  InterposedEntry* entry = script_table().find(key);
  if (entry == nullptr || is_idle(entry->gate)) return {};
  auto running = c10::make_intrusive<ScriptCall>(entry->gate, function);
  Call& call = running->call;
  if (call.idle() || entry->module.load() != key) return {};
  call.own_plan();
  if (call.wants_inputs()) {
    CallTensors inputs;
    for (std::size_t i = 0; i < arguments; ++i) collect(self[2 + i], *function.inputs[i], inputs);
    call.before(inputs);
  }
  return call.wants_outputs() ? c10::IValue::make_capsule(std::move(running)) : c10::IValue();
}

void enter(Stack& stack, std::size_t arguments) {
  c10::IValue call = run_before(stack, arguments);
  const auto self = stack.end() - static_cast<std::ptrdiff_t>(arguments) - 2;
  self[1] = std::move(call);
  stack.erase(self);
}

void leave(Stack& stack) {
  c10::IValue value = std::move(stack.back());
  stack.pop_back();
  const c10::IValue call = std::move(stack.back());
  stack.pop_back();
  if (call.isCapsule()) {
    const auto holder = call.toCapsule();
    auto& running = static_cast<ScriptCall&>(*holder);
    CallTensors outputs;
    collect(value, *running.function.output, outputs);
    running.call.after(outputs);
  }
  stack.push_back(std::move(value));
}

// Conservative: LibTorch assumes that the operator may read and change anything, and neither moves nor
// removes it.
void register_once(const std::string& schema, torch::jit::Operation operation) {
  static std::mutex mutex;
  static std::set<std::string> registered;
  const std::lock_guard lock(mutex);
  if (!registered.insert(schema).second) return;
  torch::jit::registerOperator(
      torch::jit::Operator(schema, std::move(operation), c10::AliasAnalysisKind::CONSERVATIVE));
}

}  // namespace

InterposedTable& script_table() {
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

c10::Symbol enter_operator(std::size_t arguments) {
  const std::string name = c10::str("torchtap::enter", arguments);
  std::string schema = name + "(Any self, int function";
  std::string returns = "(Any";
  for (std::size_t i = 0; i < arguments; ++i) {
    schema += c10::str(", Any argument", i);
    returns += ", Any";
  }
  register_once(schema + ") -> " + returns + ")", [arguments](Stack& stack) { enter(stack, arguments); });
  return c10::Symbol::fromQualString(name);
}

c10::Symbol leave_operator() {
  register_once("torchtap::leave(Any call, Any value) -> Any", [](Stack& stack) { leave(stack); });
  return c10::Symbol::fromQualString("torchtap::leave");
}

}  // namespace torchtap::hooks::detail
