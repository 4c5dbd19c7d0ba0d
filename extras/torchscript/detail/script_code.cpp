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

/// A copy of the function's graph with operators around its body.
std::shared_ptr<Graph> instrumented(const GraphFunction& function, const ScriptFunction& known, Sides sides) {
  const ScriptOperators& operators = script_operators();
  auto graph = function.graph()->copy();
  const auto inputs = graph->inputs();
  const auto made = [&](c10::Symbol kind, at::ArrayRef<Value*> of, std::size_t outputs) {
    Node* node = graph->create(kind, of, outputs);
    set_function(*node, known);
    return node;
  };
  // The interpreter leaves a value on its stack where the next node takes it as its first input. So the
  // object comes last, and nothing is passed that is not needed.
  Value* last = inputs[0];
  if (sides.inputs) {
    std::vector<Value*> arguments(inputs.begin() + 1, inputs.end());
    const std::size_t count = arguments.size();
    arguments.push_back(last);
    Node* enter = made(sides.outputs ? operators.enter : operators.before, arguments,
                       sides.outputs ? count + 1 : count);
    enter->insertBefore(*graph->nodes().begin());
    for (std::size_t i = 0; i < count; ++i) {
      enter->outputs()[i]->setType(inputs[i + 1]->type());
      inputs[i + 1]->replaceAllUsesAfterNodeWith(enter, enter->outputs()[i]);
    }
    if (sides.outputs) {
      last = enter->outputs()[count];
      last->setType(c10::AnyType::get());
    }
  }
  if (sides.outputs) {
    Value* result = graph->outputs()[0];
    Node* leave = made(sides.inputs ? operators.leave : operators.after, {result, last}, 1);
    leave->output()->setType(result->type());
    leave->insertBefore(graph->return_node());
    graph->block()->replaceOutput(0, leave->output());
  }
  return graph;
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
}

Sides ScriptCode::sides_in(const Variant& variant) const noexcept {
  const auto found = std::lower_bound(variant.begin(), variant.end(), Variant::value_type{function_, {}});
  return found != variant.end() && found->first == function_ ? found->second : Sides{};
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
void ScriptCode::compile(Compiled& compiled, Sides sides) const {
  for_each_state([&](std::size_t state) {
    if (compiled.graphs[state] != nullptr) return;
    std::shared_ptr<Graph> graph = instrumented(*function_, known, sides);
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
  if (const Sides sides = sides_in(variant); sides.any()) compile(next, sides);
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
