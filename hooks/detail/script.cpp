#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/version.h>

#include <algorithm>
#include <map>
#include <torchtap/core/detail/expose.hpp>
#include <torchtap/core/detail/script.hpp>
#include <torchtap/core/error.hpp>
#include <torchtap/hooks/detail/direct.hpp>
#include <torchtap/hooks/detail/script.hpp>
#include <torchtap/hooks/detail/script_call.hpp>
#include <unordered_map>
#include <unordered_set>

// LibTorch makes executors, and inlines into callers, from a function's optimised graphs, which it makes
// itself of the graph that was loaded; it offers no other way to have something executed that is not in the
// model.
namespace torchtap::core::detail {

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

}  // namespace torchtap::core::detail

namespace torchtap::hooks::detail {
namespace {

using torch::jit::Block;
using torch::jit::CompilationUnit;
using torch::jit::Graph;
using torch::jit::GraphFunction;
using torch::jit::Node;
using torch::jit::Value;

auto& graphs_of(GraphFunction& function) {
  return function.*exposed(core::detail::OptimizedGraphs{});
}
auto& executors_of(GraphFunction& function) {
  return function.*exposed(core::detail::Executors{});
}

/// Autocast on a CPU and on a GPU.
struct Autocast {
  bool cpu = false, gpu = false;
};

/// Runs `action` with autocast on and off, as LibTorch keeps a graph for each.
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

/// The function with the two operators around its body.
std::shared_ptr<Graph> instrumented(const GraphFunction& function, const ScriptFunction& known) {
  auto graph = function.graph()->copy();
  const auto inputs = graph->inputs();
  Node* const first = *graph->nodes().begin();
  const torch::jit::WithInsertPoint here(first);
  // The address of what lives as long as the function: found without a look-up, and never saved.
  Value* number = graph->insertConstant(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&known)));
  std::vector<Value*> arguments{inputs[0], number};
  arguments.insert(arguments.end(), inputs.begin() + 1, inputs.end());
  Node* enter = graph->insertNode(
      graph->create(enter_operator(inputs.size() - 1), arguments, /*num_outputs=*/inputs.size()));
  enter->outputs()[0]->setType(c10::AnyType::get());
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    enter->outputs()[i]->setType(inputs[i]->type());
    inputs[i]->replaceAllUsesAfterNodeWith(enter, enter->outputs()[i]);
  }
  Value* result = graph->outputs()[0];
  Node* leave = graph->create(leave_operator(), {enter->outputs()[0], result}, 1);
  leave->output()->setType(result->type());
  leave->insertBefore(graph->return_node());
  graph->block()->replaceOutput(0, leave->output());
  return graph;
}

/// What is compiled into one function: for each hooked function that it calls, directly or not, and for
/// itself.
using Variant = std::vector<const GraphFunction*>;

/// A function of a model, and what it was compiled to.
struct Code {
  GraphFunction* function = nullptr;
  std::weak_ptr<CompilationUnit> unit;
  std::vector<GraphFunction*> callees;
  ScriptFunction known;
  Autocast asks;  // whether the code, that of callees included, asks for the state of autocast
  int doors = 0;  // hooked objects that have this function

  struct Compiled {
    std::decay_t<decltype(graphs_of(*function))> graphs;
    std::decay_t<decltype(executors_of(*function))> executors;
    std::uint64_t used = 0;
  };
  Variant current;
  std::map<Variant, Compiled> others;

  std::recursive_mutex& mutex() const { return (*function).*exposed(core::detail::CompileMutex{}); }

  // Copied, and not moved: a thread that has just asked the function for its executor may still be on its
  // way.
  Compiled installed() const { return {graphs_of(*function), executors_of(*function), 0}; }
  void install(const Compiled& compiled) {
    graphs_of(*function) = compiled.graphs;
    executors_of(*function) = compiled.executors;
  }

  /// The graph that LibTorch would make by itself, with the operators inside. The callees have to be done.
  void optimize() {
    for_each_autocast([this](Autocast on) {
      // LibTorch's own pass crashes here, in all versions: such a model does not run like this.
      if ((on.cpu && asks.cpu) || (on.gpu && asks.gpu)) return;
      const auto specialization =
          static_cast<std::size_t>(((*function).*exposed(core::detail::CurrentSpecialization{}))());
      auto& optimized = graphs_of(*function)[specialization];
      if (optimized) return;
      std::shared_ptr<Graph> graph = instrumented(*function, known);
      if (torch::jit::getGraphExecutorOptimize()) {
        torch::jit::preoptimizeGraph(graph, (*function).*exposed(core::detail::ForceNoAmp{}));
      }
      optimized = std::move(graph);
      TORCH_CHECK_NOT_IMPLEMENTED(
          function->optimized_graph() == optimized,
          "hooks::attach: LibTorch was told to keep no optimized graphs "
          "(torch_jit_do_not_store_optimized_graph), "
          "and there is no other place for hooks of a TorchScript module; unset that flag.");
    });
  }
};

/// All code of the models that have, or had, hooks. Guarded by the registry's lock.
class Codes {
 public:
  static Codes& instance() {
    static auto* codes = new Codes;  // models may outlive static objects
    return *codes;
  }

  void open(GraphFunction& function, const std::shared_ptr<CompilationUnit>& unit,
            const std::shared_ptr<CompilationUnit>& root, int method);
  void close(const GraphFunction& function) noexcept;
  void compile();

 private:
  void learn(const std::shared_ptr<CompilationUnit>& unit);
  void learn_calls(Code& code, Block& block);
  void forget_dead() noexcept;
  const std::unordered_set<const GraphFunction*>& hooked_inside(
      const GraphFunction& function,
      std::unordered_map<const GraphFunction*, std::unordered_set<const GraphFunction*>>& known) const;
  void sort(const GraphFunction& function, std::unordered_set<const GraphFunction*>& met,
            std::vector<Code*>& sorted);

  std::unordered_map<const GraphFunction*, Code> codes_;
  std::unordered_map<const CompilationUnit*, std::pair<std::weak_ptr<CompilationUnit>, std::size_t>> units_;
  std::uint64_t clock_ = 0;
  bool opened_ = false, closed_ = false;  // since the last compile()
};

void Codes::open(GraphFunction& function, const std::shared_ptr<CompilationUnit>& unit,
                 const std::shared_ptr<CompilationUnit>& root, int method) {
  forget_dead();
  learn(root);
  learn(unit);
  Code& code = codes_.at(&function);
  code.known.method = method;
  if (code.doors++ == 0) opened_ = true;
}

void Codes::close(const GraphFunction& function) noexcept {
  const auto found = codes_.find(&function);
  if (found != codes_.end() && --found->second.doors == 0) closed_ = true;
}

void Codes::forget_dead() noexcept {
  for (auto unit = units_.begin(); unit != units_.end();) {
    unit = unit->second.first.expired() ? units_.erase(unit) : std::next(unit);
  }
  for (auto code = codes_.begin(); code != codes_.end();) {
    code = code->second.unit.expired() ? codes_.erase(code) : std::next(code);
  }
}

void Codes::learn(const std::shared_ptr<CompilationUnit>& unit) {
  const auto functions = unit->get_functions();
  auto& [alive, known] = units_[unit.get()];
  if (alive.expired()) known = 0;
  alive = unit;
  if (known == functions.size()) return;
  known = functions.size();
  for (auto* function : functions) {
    auto* graph_function = torch::jit::tryToGraphFunction(*function);
    if (graph_function == nullptr || codes_.count(graph_function) != 0) continue;
    graph_function->ensure_defined();
    Code code;
    code.function = graph_function;
    code.unit = unit;
    const auto graph = graph_function->graph();
    for (std::size_t i = 1; i < graph->inputs().size(); ++i) {
      code.known.inputs.push_back(graph->inputs()[i]->type());
    }
    if (graph->outputs().size() == 1) code.known.output = graph->outputs()[0]->type();
    learn_calls(codes_.emplace(graph_function, std::move(code)).first->second, *graph->block());
  }
}

void Codes::learn_calls(Code& code, Block& block) {
  for (auto* node : block.nodes()) {
    torch::jit::Function* callee = nullptr;
    if (node->kind() == c10::prim::CallMethod) {
      // What is called through an interface is looked up at run time: not a part of its caller's code.
      if (const auto type = node->input(0)->type()->cast<c10::ClassType>()) {
        callee = type->findMethod(node->s(c10::attr::name));
        if (const auto unit = type->compilation_unit(); unit != nullptr && callee != nullptr) learn(unit);
      }
    } else if (node->kind() == c10::prim::CallFunction) {
      if (const auto type = node->input(0)->type()->cast<c10::FunctionType>()) callee = type->function();
    }
    static const auto kCpu = c10::Symbol::fromQualString("aten::is_autocast_cpu_enabled");
    static const auto kGpu = c10::Symbol::fromQualString("aten::is_autocast_enabled");
    code.asks.cpu = code.asks.cpu || node->kind() == kCpu;
    code.asks.gpu = code.asks.gpu || node->kind() == kGpu;
    if (callee != nullptr) {
      if (auto* function = torch::jit::tryToGraphFunction(*callee)) code.callees.push_back(function);
    }
    for (auto* inner : node->blocks()) learn_calls(code, *inner);
    if (node->hasAttribute(c10::attr::Subgraph)) learn_calls(code, *node->g(c10::attr::Subgraph)->block());
  }
}

const std::unordered_set<const GraphFunction*>& Codes::hooked_inside(
    const GraphFunction& function,
    std::unordered_map<const GraphFunction*, std::unordered_set<const GraphFunction*>>& known) const {
  if (const auto found = known.find(&function); found != known.end()) return found->second;
  std::unordered_set<const GraphFunction*> hooked;
  const Code& code = codes_.at(&function);
  if (code.doors != 0) hooked.insert(&function);
  for (const auto* callee : code.callees) {
    if (codes_.count(callee) == 0) continue;
    const auto& inside = hooked_inside(*callee, known);
    hooked.insert(inside.begin(), inside.end());
  }
  return known[&function] = std::move(hooked);
}

// Callees first.
void Codes::sort(const GraphFunction& function, std::unordered_set<const GraphFunction*>& met,
                 std::vector<Code*>& sorted) {
  const auto found = codes_.find(&function);
  if (found == codes_.end() || !met.insert(&function).second) return;
  Code& code = found->second;
  for (const auto* callee : code.callees) {
    sort(*callee, met, sorted);
    if (const auto inner = codes_.find(callee); inner != codes_.end()) {
      code.asks.cpu = code.asks.cpu || inner->second.asks.cpu;
      code.asks.gpu = code.asks.gpu || inner->second.asks.gpu;
    }
  }
  sorted.push_back(&code);
}

void Codes::compile() {
  if (!opened_ && !closed_) return;
  // Whoever takes hooks off one by one does not have everything compiled anew each time: operators that find
  // no hooks stay until the last hook inside of a function is gone.
  const bool only_restore = !opened_;
  forget_dead();
  std::vector<std::shared_ptr<CompilationUnit>> alive;
  for (const auto& unit : units_) alive.push_back(unit.second.first.lock());

  std::unordered_map<const GraphFunction*, std::unordered_set<const GraphFunction*>> hooked;
  std::unordered_set<const GraphFunction*> met;
  std::vector<Code*> sorted;
  for (const auto& code : codes_) sort(*code.first, met, sorted);
  std::vector<std::pair<Code*, Variant>> todo;
  for (auto* code : sorted) {
    const auto& inside = hooked_inside(*code->function, hooked);
    Variant variant(inside.begin(), inside.end());
    std::sort(variant.begin(), variant.end());
    if (variant == code->current || (only_restore && !variant.empty())) continue;
    todo.emplace_back(code, std::move(variant));
  }

  // All at once for whoever runs the model meanwhile, who would otherwise compile a caller from callees of
  // which some are done. Callers first, as LibTorch locks them.
  std::vector<std::unique_lock<std::recursive_mutex>> locks;
  for (auto entry = todo.rbegin(); entry != todo.rend(); ++entry) locks.emplace_back(entry->first->mutex());
  std::vector<Code::Compiled> before;
  for (const auto& entry : todo) before.push_back(entry.first->installed());
  try {
    for (auto& [code, variant] : todo) {
      const auto other = code->others.find(variant);
      code->install(other != code->others.end() ? other->second : Code::Compiled{});
    }
    for (auto& entry : todo) {
      if (entry.first->doors != 0) entry.first->optimize();
    }
  } catch (...) {
    for (std::size_t i = 0; i < todo.size(); ++i) todo[i].first->install(before[i]);
    throw;
  }
  // Kept: the original to be put back, the others for those who attach again; and a call that is under way
  // may still be executing any of them, so that what goes in the end has to be old.
  constexpr std::size_t kMostOthers = 8;
  for (std::size_t i = 0; i < todo.size(); ++i) {
    auto& [code, variant] = todo[i];
    before[i].used = ++clock_;
    code->others.erase(variant);
    code->others[code->current] = std::move(before[i]);
    code->current = std::move(variant);
    if (code->others.size() <= kMostOthers) continue;
    auto oldest = code->others.end();
    for (auto other = code->others.begin(); other != code->others.end(); ++other) {
      const bool is_original = other->first.empty();
      if (!is_original && (oldest == code->others.end() || other->second.used < oldest->second.used)) {
        oldest = other;
      }
    }
    code->others.erase(oldest);
  }
  opened_ = closed_ = false;
}

}  // namespace

struct ScriptDoor::Impl {
  // Not the object itself, which dies with the model; but its memory, so that no other takes its address.
  c10::weak_intrusive_ptr<c10::ivalue::Object> object;
  std::vector<GraphFunction*> functions;
  std::weak_ptr<CompilationUnit> unit;
  DirectEntry* entry = nullptr;
};

ScriptDoor::ScriptDoor(const core::ModuleRef& module)
    : impl_(new Impl{c10::weak_intrusive_ptr<c10::ivalue::Object>(module.script()._ivalue()),
                     {},
                     module.script().type()->compilation_unit()}) {
  const int method = method_number(module.method());
  const auto unit = impl_->unit.lock();
  const auto root = module.root().script().type()->compilation_unit();
  for (auto* function : core::detail::functions_of(module.script(), module.method())) {
    auto* graph_function = torch::jit::tryToGraphFunction(*function);
    TORCH_CHECK_NOT_IMPLEMENTED(
        graph_function != nullptr, "hooks::attach: ", module.method(), " of \"", module.path(), "\" (",
        module.type(),
        ") is not TorchScript code, as it runs in another backend; load the model as it "
        "was before it was lowered.");
    impl_->functions.push_back(graph_function);
  }
  for (auto* function : impl_->functions) Codes::instance().open(*function, unit, root, method);
  const void* key = script_key(impl_->object.lock().get(), method);
  impl_->entry = &script_table().insert(key, {}, core::Direct::no);
}

ScriptDoor::~ScriptDoor() {
  script_table().erase(*impl_->entry);
  if (impl_->unit.expired()) return;
  for (const auto* function : impl_->functions) Codes::instance().close(*function);
}

core::Gate& ScriptDoor::gate() const noexcept {
  return impl_->entry->gate;
}

bool ScriptDoor::expired() const noexcept {
  return impl_->object.expired();
}

const void* script_key(const core::ModuleRef& module) {
  return script_key(module.script()._ivalue().get(), method_number(module.method()));
}

void compile_scripts() {
  Codes::instance().compile();
}

}  // namespace torchtap::hooks::detail
