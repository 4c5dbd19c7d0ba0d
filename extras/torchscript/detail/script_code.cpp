// Compiles TorchScript functions with hook operators, and installs their graphs and executors.

#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>

#include <torchtap/base/error.hpp>
#include <torchtap/base/expose.hpp>
#include <torchtap/torchscript/detail/script_code.hpp>
#include <torchtap/torchscript/functions.hpp>

// LibTorch makes a function's optimised graphs from the loaded graph, makes executors from them and inlines
// them into callers. It offers no other way to execute code that is not in the model.
namespace torchtap::base {

struct OptimizedGraphs {
  friend auto exposed(OptimizedGraphs);
};
struct Executors {
  friend auto exposed(Executors);
};
struct CompileMutex {
  friend auto exposed(CompileMutex);
};
struct ForceNoAmp {
  friend auto exposed(ForceNoAmp);
};
struct CurrentSpecialization {
  friend auto exposed(CurrentSpecialization);
};
template struct Expose<OptimizedGraphs, &torch::jit::GraphFunction::optimized_graphs_>;
template struct Expose<Executors, &torch::jit::GraphFunction::executors_>;
template struct Expose<CompileMutex, &torch::jit::GraphFunction::compile_mutex>;
template struct Expose<ForceNoAmp, &torch::jit::GraphFunction::force_no_amp_>;
template struct Expose<CurrentSpecialization, &torch::jit::GraphFunction::currentSpecialization>;

}  // namespace torchtap::base

namespace torchtap::torchscript::detail {
namespace {

using torch::jit::Graph;
using torch::jit::GraphExecutor;
using torch::jit::GraphFunction;
using torch::jit::Node;
using torch::jit::Value;

auto& graphs_of(GraphFunction& function) {
  return function.*exposed(base::OptimizedGraphs{});
}
auto& executors_of(GraphFunction& function) {
  return function.*exposed(base::Executors{});
}
std::recursive_mutex& mutex_of(GraphFunction& function) {
  return function.*exposed(base::CompileMutex{});
}

// LibTorch's versions differ in whether a place is an optional, and of which kind.
template <class Place>
std::shared_ptr<Graph> value_of(const Place& place) {
  if constexpr (std::is_convertible_v<Place, std::shared_ptr<Graph>>) {
    return place;
  } else {
    return place ? *place : nullptr;
  }
}

// Copied, neither moved nor swapped: a thread that has just asked for the executor may be about to read the
// pointer, and must find the old or the new one.
template <class Place, class Value>
void put(Place& place, const Value* value) {
  if (value != nullptr) {
    place = *value;
  } else {
    place.reset();
  }
}

/// Runs `action` with autocast on and off, because LibTorch keeps a graph for each.
template <class Action>
void for_each_autocast(Action&& action) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  const auto is_on = [](at::DeviceType device) { return at::autocast::is_autocast_enabled(device); };
  const auto turn = [](at::DeviceType device, bool on) { at::autocast::set_autocast_enabled(device, on); };
#else
  const auto is_on = [](at::DeviceType device) {
    return device == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
  };
  const auto turn = [](at::DeviceType device, bool on) {
    device == at::kCPU ? at::autocast::set_cpu_enabled(on) : at::autocast::set_enabled(on);
  };
#endif
  struct Restore {
    decltype(turn)& set;
    bool cpu, gpu;
    ~Restore() {
      set(at::kCPU, cpu);
      set(at::kCUDA, gpu);
    }
  } restore{turn, is_on(at::kCPU), is_on(at::kCUDA)};
  for (const bool cpu : {false, true}) {
    for (const bool gpu : {false, true}) {
      turn(at::kCPU, cpu);
      turn(at::kCUDA, gpu);
      action(Autocast{cpu, gpu});
    }
  }
}

/// An operator of hooks.
Node* operator_of(const ScriptFunction& known, c10::Symbol kind, Graph& graph, at::ArrayRef<Value*> of,
                  std::size_t outputs) {
  Node* node = graph.create(kind, of, outputs);
  set_function(*node, known);
  return node;
}

/// Inserts, before `place`, the operator that sees the arguments of a call. The interpreter leaves a value on
/// its stack where the next node takes it as its first input; so the object comes last, and nothing is passed
/// that is not needed.
Node* enter(const ScriptFunction& known, Sides sides, at::ArrayRef<Value*> given, Value* self, Node* place) {
  const ScriptOperators& operators = script_operators();
  std::vector<Value*> arguments = given.vec();
  arguments.push_back(self);
  Node* node = operator_of(known, sides.outputs ? operators.enter : operators.before, *place->owningGraph(),
                           arguments, sides.outputs ? arguments.size() : given.size());
  node->insertBefore(place);
  for (std::size_t i = 0; i < given.size(); ++i) node->outputs()[i]->setType(known.inputs[i]);
  if (sides.outputs) node->outputs().back()->setType(c10::AnyType::get());
  return node;
}

/// Inserts, before `place`, the operator that sees what a call returns. `entered` is the one before it, where
/// there is one.
Value* leave(const ScriptFunction& known, Value* result, Value* self, Node* entered, Node* place) {
  const ScriptOperators& operators = script_operators();
  Value* last = entered != nullptr ? entered->outputs().back() : self;
  Node* node = operator_of(known, entered != nullptr ? operators.leave : operators.after,
                           *place->owningGraph(), {result, last}, 1);
  node->output()->setType(result->type());
  node->insertBefore(place);
  return node->output();
}

const torch::jit::Function* called_by(const Node& node) {
  if (node.kind() != c10::prim::CallFunction) return nullptr;
  const auto type = node.input(0)->type()->cast<c10::FunctionType>();
  return type == nullptr ? nullptr : type->function();
}

/// Calls of hooks of the file, which its class lists, by which a call of forward is followed: each takes the
/// module, the tuple of its inputs and what the one before it returned. None, if not all of them are there,
/// as where code calls forward itself.
std::vector<Node*> calls_of_hooks(Node& call, const c10::ClassType& self) {
  std::vector<Node*> calls;
  Value* output = call.output();
  for (const auto* hook : self.getForwardHooks()) {
    Node* found = nullptr;
    for (const auto& use : output->uses()) {
      Node* const user = use.user;
      const auto* function = called_by(*user);
      // A file has the hook twice: among the methods of the class, and as the function that callers call.
      const bool is_call = function != nullptr && use.offset == 3 && user->inputs().size() == 4 &&
                           function->name() == hook->name() && user->input(1) == call.input(0) &&
                           user->owningBlock() == call.owningBlock() &&
                           (calls.empty() || user->input(2) == calls.front()->input(2)) &&
                           user->isAfter(calls.empty() ? &call : calls.back());
      if (is_call && (found == nullptr || user->isBefore(found))) found = user;
    }
    if (found == nullptr) return {};
    calls.push_back(found);
    if (found->output()->type()->kind() != c10::TypeKind::NoneType) output = found->output();
  }
  return calls;
}

/// Gives the hooks of the file the arguments that our hooks may have replaced, as Python gives its hooks.
void pass_on(Node* entered, const ScriptFunction& known, const std::vector<Node*>& hooks) {
  const auto type = hooks.front()->input(2)->type()->cast<c10::TupleType>();
  if (type == nullptr || type->elements().size() > known.inputs.size()) return;
  const std::size_t count = type->elements().size();
  for (std::size_t i = 0; i < count; ++i) {
    if (*type->elements()[i] != *known.inputs[i]) return;
  }
  Node* const tuple =
      entered->owningGraph()->create(c10::prim::TupleConstruct, entered->outputs().slice(0, count), 1);
  tuple->output()->setType(type);
  tuple->insertAfter(entered);
  for (Node* hook : hooks) hook->replaceInput(2, tuple->output());
}

/// Lets operators find objects that nothing else uses in those around them, which costs the interpreter less
/// than to look them up.
void fold_objects(torch::jit::Block& block) {
  const ScriptOperators& operators = script_operators();
  for (Node* node : block.nodes()) {
    for (auto* inner : node->blocks()) fold_objects(*inner);
    if (node->kind() != operators.before && node->kind() != operators.after &&
        node->kind() != operators.enter)
      continue;
    const std::size_t last = node->inputs().size() - 1;
    for (Value* object = node->input(last); object->node()->kind() == c10::prim::GetAttr;
         object = node->input(last)) {
      Node* const found = object->node();
      const auto around = found->input()->type()->cast<c10::ClassType>();
      if (object->uses().size() != 1 || around == nullptr) break;
      std::vector<std::int64_t> slots;
      if (node->hasAttribute(operators.slots_attribute)) slots = node->is(operators.slots_attribute);
      const auto slot = around->getAttributeSlot(found->s(c10::attr::name));
      slots.insert(slots.begin(), static_cast<std::int64_t>(slot));
      node->is_(operators.slots_attribute, std::move(slots));
      node->replaceInput(last, found->input());
      found->destroy();
    }
  }
}

}  // namespace

ScriptCode::ScriptCode(GraphFunction& compiled) : function_(&compiled) {
  compiled.ensure_defined();
  const auto graph = compiled.graph();
  for (std::size_t i = 1; i < graph->inputs().size(); ++i) {
    known.inputs.push_back(graph->inputs()[i]->type());
  }
  if (graph->outputs().size() == 1) known.output = graph->outputs()[0]->type();
  if (graph->inputs().empty() || graph->outputs().size() != 1) return;
  const auto self = graph->inputs()[0]->type()->cast<c10::ClassType>();
  hookable = self != nullptr && self->is_module() && implements(compiled.name(), "forward");
  if (!hookable || compiled.name() != "forward" || self->getForwardHooks().empty()) return;
  called_.inputs = known.inputs;
  called_.output = known.output;
  for (const auto* hook : self->getForwardHooks()) {
    const auto& type = hook->getSchema().returns().at(0).type();
    if (type->kind() != c10::TypeKind::NoneType) called_.output = type;
  }
}

Sides ScriptCode::sides_in(const Variant& variant) const noexcept {
  const auto found = std::lower_bound(variant.begin(), variant.end(), Variant::value_type{function_, {}});
  return found != variant.end() && found->first == function_ ? found->second : Sides{};
}

bool ScriptCode::differs_in(const Variant& variant) const noexcept {
  return sides_in(variant).any() ||
         std::any_of(hooked_in_file.begin(), hooked_in_file.end(),
                     [&](const ScriptCode* callee) { return callee->sides_in(variant).any(); });
}

/// A copy of the function's graph with operators around its body, and around calls of modules that have
/// hooks in the file.
std::shared_ptr<Graph> ScriptCode::instrumented(const Variant& variant, Sides sides) const {
  auto graph = function_->graph()->copy();
  if (!hooked_in_file.empty()) instrument_calls(*graph->block(), variant);
  const auto inputs = graph->inputs();
  Node* entered = nullptr;
  if (sides.inputs) {
    const auto arguments = inputs.slice(1);
    entered = enter(known, sides, arguments, inputs[0], *graph->nodes().begin());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      arguments[i]->replaceAllUsesAfterNodeWith(entered, entered->outputs()[i]);
    }
  }
  if (sides.outputs) {
    graph->block()->replaceOutput(
        0, leave(known, graph->outputs()[0], inputs[0], entered, graph->return_node()));
  }
  return graph;
}

void ScriptCode::instrument_calls(torch::jit::Block& block, const Variant& variant) const {
  std::vector<std::pair<Node*, const ScriptCode*>> calls;  // first found, because each puts nodes around it
  for (Node* node : block.nodes()) {
    for (auto* inner : node->blocks()) instrument_calls(*inner, variant);
    if (node->hasAttribute(c10::attr::Subgraph)) {
      const auto inside = node->g(c10::attr::Subgraph)->copy();
      instrument_calls(*inside->block(), variant);
      node->g_(c10::attr::Subgraph, inside);
    }
    if (node->kind() != c10::prim::CallMethod) continue;
    const auto self = node->input(0)->type()->cast<c10::ClassType>();
    const auto* callee = self == nullptr ? nullptr : self->findMethod(node->s(c10::attr::name));
    for (const auto* code : hooked_in_file) {
      if (&code->function() == callee) calls.emplace_back(node, code);
    }
  }
  for (const auto& [call, callee] : calls) instrument_call(*call, *callee, variant);
}

/// Where a caller calls forward and then hooks of the file, our hooks see the call as it does, and as later
/// hooks see it in Python: the arguments that the file's earlier hooks chose, and the result of the last one.
/// The function's own operators would see it from inside, so its body is put here without them.
void ScriptCode::instrument_call(Node& call, const ScriptCode& callee, const Variant& variant) const {
  const Sides sides = callee.sides_in(variant);
  if (!sides.any()) return;
  Value* const self = call.input(0);
  const std::vector<Node*> hooks = calls_of_hooks(call, self->type()->expectRef<c10::ClassType>());
  if (hooks.empty()) return;
  Value* result = call.output();
  for (Node* hook : hooks) {
    if (hook->output()->type()->kind() != c10::TypeKind::NoneType) result = hook->output();
  }
  Node* entered = nullptr;
  if (sides.inputs) {
    entered = enter(callee.called_, sides, call.inputs().slice(1), self, &call);
    for (std::size_t i = 1; i < call.inputs().size(); ++i) call.replaceInput(i, entered->outputs()[i - 1]);
    pass_on(entered, callee.called_, hooks);
  }
  if (sides.outputs) {
    Value* const left = leave(callee.called_, result, self, entered, hooks.back()->next());
    result->replaceAllUsesAfterNodeWith(left->node(), left);
  }
  const auto body = callee.instrumented(variant, {});
  torch::jit::inlineCallTo(&call, callee.function_, body.get());
}

ScriptCode::Compiled ScriptCode::in_place() const {
  const auto& graphs = graphs_of(*function_);
  const auto& executors = executors_of(*function_);
  static_assert(std::tuple_size_v<std::decay_t<decltype(graphs)>> == kStates);
  static_assert(std::tuple_size_v<std::decay_t<decltype(executors)>> == kStates);
  Compiled compiled;
  for (std::size_t i = 0; i < kStates; ++i) {
    compiled.graphs[i] = value_of(graphs[i]);
    if (executors[i]) compiled.executors[i] = *executors[i];
  }
  return compiled;
}

void ScriptCode::put_in_place(const Compiled& compiled) {
  for (std::size_t i = 0; i < kStates; ++i) {
    const auto& graph = compiled.graphs[i];
    const auto& executor = compiled.executors[i];
    put(graphs_of(*function_)[i], graph != nullptr ? &graph : nullptr);
    put(executors_of(*function_)[i], executor ? &*executor : nullptr);
  }
}

template <class Action>
void ScriptCode::for_each_state(Action&& action) const {
  for_each_autocast([&](Autocast on) {
    // LibTorch's own pass crashes here, in all versions, so no model runs in this state.
    if ((on.cpu && asks.cpu) || (on.gpu && asks.gpu)) return;
    action(static_cast<std::size_t>(((*function_).*exposed(base::CurrentSpecialization{}))()));
  });
}

/// Makes the graphs that LibTorch would make by itself, with the operators inside.
void ScriptCode::compile(Compiled& compiled, const Variant& variant) const {
  for_each_state([&](std::size_t state) {
    if (compiled.graphs[state] != nullptr) return;
    std::shared_ptr<Graph> graph = instrumented(variant, sides_in(variant));
    if (torch::jit::getGraphExecutorOptimize()) {
      torch::jit::preoptimizeGraph(graph, (*function_).*exposed(base::ForceNoAmp{}));
      fold_objects(*graph->block());
    }
    compiled.graphs[state] = std::move(graph);
  });
}

void ScriptCode::remember() {
  Compiled& kept = variants_[current_];
  const std::lock_guard lock(mutex_of(*function_));
  const Compiled found = in_place();
  for (std::size_t i = 0; i < kStates; ++i) {
    if (kept.graphs[i] == nullptr) kept.graphs[i] = found.graphs[i];
    if (!kept.executors[i]) kept.executors[i] = found.executors[i];
  }
}

void ScriptCode::exchange(const Variant& variant) {
  Compiled& next = variants_[variant];
  if (differs_in(variant)) compile(next, variant);
  Compiled& former = variants_[current_];
  strays_.emplace_back();
  Compiled& found = strays_.back();
  {
    const std::lock_guard lock(mutex_of(*function_));
    found = in_place();
    put_in_place(next);
  }
  bool is_stray = false;
  for (std::size_t i = 0; i < kStates; ++i) {
    // An executor is made from its graph, so the executor of an unchanged graph belongs to this variant.
    is_stray = is_stray || found.graphs[i] != former.graphs[i];
    if (found.graphs[i] == former.graphs[i] && !former.executors[i]) former.executors[i] = found.executors[i];
  }
  if (!is_stray) strays_.pop_back();
  current_ = variant;
}

void ScriptCode::check() const {
  const Compiled& wanted = variants_.at(current_);
  for_each_state([&](std::size_t state) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        function_->optimized_graph() == wanted.graphs[state],
        "hooks::attach: hooks of TorchScript modules need optimized graphs, which LibTorch is told not to "
        "keep (torch_jit_do_not_store_optimized_graph); unset that flag.");
  });
}

}  // namespace torchtap::torchscript::detail
