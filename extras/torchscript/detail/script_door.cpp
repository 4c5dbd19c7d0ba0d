// Decides which TorchScript functions need hook operators, and has those compiled whose hooks changed.

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/extend/door.hpp>
#include <torchtap/torchscript/detail/script_call.hpp>
#include <torchtap/torchscript/detail/script_code.hpp>
#include <torchtap/torchscript/detail/script_door.hpp>
#include <torchtap/torchscript/detail/script_models.hpp>
#include <torchtap/torchscript/functions.hpp>

namespace torchtap::torchscript::detail {
namespace {

using torch::jit::Block;
using torch::jit::CompilationUnit;
using torch::jit::GraphFunction;

/// The code of all models that have or had hooks. Guarded by the registry's lock.
class Codes {
 public:
  static Codes& instance() {
    static auto* codes = new Codes;  // models may outlive static objects
    return *codes;
  }

  /// Adds the code of a model.
  void learn(const std::shared_ptr<CompilationUnit>& unit) {
    forget_dead();
    add(unit);
  }
  /// Throws if `function`, which must be known, has hooks under a method name other than the module's.
  void check_name(const GraphFunction& function, const model::ModuleRef& module) const;
  void open(const GraphFunction& function, int method) noexcept;
  /// Notes that the hooks of an object which has the function see other sides of its calls than before.
  void change(const GraphFunction& function, Sides former, Sides next) noexcept;
  void close(const GraphFunction& function) noexcept;
  /// Compiles the functions whose hooks changed and installs them.
  void compile();

 private:
  struct Entry {
    std::weak_ptr<CompilationUnit> unit;
    ScriptCode code;

    Entry(GraphFunction& function, const std::shared_ptr<CompilationUnit>& owner)
        : unit(owner), code(function) {}
  };
  using Inside = std::unordered_map<const GraphFunction*, std::unordered_set<const GraphFunction*>>;
  struct Change {
    ScriptCode* code;
    Variant former, next;
  };

  ScriptCode* find(const GraphFunction& function) {
    const auto found = codes_.find(&function);
    return found == codes_.end() ? nullptr : &found->second.code;
  }
  void add(const std::shared_ptr<CompilationUnit>& unit);
  void add_calls(ScriptCode& code, Block& block);
  void forget_dead() noexcept;
  std::vector<ScriptCode*> sorted();
  void sort(ScriptCode& code, std::unordered_set<const ScriptCode*>& met, std::vector<ScriptCode*>& sorted);
  std::vector<Change> changes();
  bool prefer_all(const std::unordered_set<const GraphFunction*>& inside);

  std::unordered_map<const GraphFunction*, Entry> codes_;
  std::unordered_map<const CompilationUnit*, std::pair<std::weak_ptr<CompilationUnit>, std::size_t>> units_;
  bool opened_ = false, closed_ = false;  // since the last compile()
};

void Codes::check_name(const GraphFunction& function, const model::ModuleRef& module) const {
  const ScriptCode& code = codes_.at(&function).code;
  const int number = code.known.method.load(std::memory_order_relaxed);
  TORCH_CHECK_NOT_IMPLEMENTED(
      code.doors == 0 || number == method_number(module.method()), "hooks::attach: ", function.name(),
      " of \"", module.path(), "\" (", module.type(), ") cannot be hooked as ", module.method(),
      ": it is already hooked as \"", method_name(number),
      "\", and a function is hooked under one name only. Use that name, or detach those hooks first.");
}

void Codes::open(const GraphFunction& function, int method) noexcept {
  ScriptCode& code = *find(function);
  // Running threads read it for existing hooks, so it changes only while there are none.
  if (code.doors == 0) {
    code.known.method.store(method, std::memory_order_relaxed);
    code.called().method.store(method, std::memory_order_relaxed);
  }
  code.hookable = true;
  ++code.doors;
}

void Codes::change(const GraphFunction& function, Sides former, Sides next) noexcept {
  ScriptCode* const code = find(function);
  if (code == nullptr) return;
  const auto count = [&](int& objects, bool was, bool is) {
    if (is && !was && objects++ == 0) opened_ = true;
    if (was && !is) --objects;
  };
  count(code->inputs, former.inputs, next.inputs);
  count(code->outputs, former.outputs, next.outputs);
}

void Codes::close(const GraphFunction& function) noexcept {
  ScriptCode* const code = find(function);
  if (code != nullptr && --code->doors == 0) closed_ = true;
}

void Codes::forget_dead() noexcept {
  for (auto unit = units_.begin(); unit != units_.end();) {
    unit = unit->second.first.expired() ? units_.erase(unit) : std::next(unit);
  }
  for (auto code = codes_.begin(); code != codes_.end();) {
    code = code->second.unit.expired() ? codes_.erase(code) : std::next(code);
  }
}

void Codes::add(const std::shared_ptr<CompilationUnit>& unit) {
  const auto functions = unit->get_functions();
  auto& [alive, known] = units_[unit.get()];
  if (alive.expired()) known = 0;
  alive = unit;
  if (known == functions.size()) return;
  known = functions.size();
  for (auto* function : functions) {
    if (function == nullptr) continue;  // removed, as by torch::jit::freeze
    auto* graph_function = torch::jit::tryToGraphFunction(*function);
    if (graph_function == nullptr) continue;
    const auto [entry, is_new] = codes_.try_emplace(graph_function, *graph_function, unit);
    if (is_new) add_calls(entry->second.code, *graph_function->graph()->block());
  }
}

void Codes::add_calls(ScriptCode& code, Block& block) {
  for (auto* node : block.nodes()) {
    torch::jit::Function* callee = nullptr;
    if (node->kind() == c10::prim::CallMethod) {
      // A call through an interface is resolved at run time, so the callee is not part of the caller's code.
      if (const auto type = node->input(0)->type()->cast<c10::ClassType>()) {
        callee = type->findMethod(node->s(c10::attr::name));
        if (const auto unit = type->compilation_unit(); unit != nullptr && callee != nullptr) add(unit);
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
    for (auto* inner : node->blocks()) add_calls(code, *inner);
    if (node->hasAttribute(c10::attr::Subgraph)) add_calls(code, *node->g(c10::attr::Subgraph)->block());
  }
}

// Callees first.
void Codes::sort(ScriptCode& code, std::unordered_set<const ScriptCode*>& met,
                 std::vector<ScriptCode*>& sorted) {
  if (!met.insert(&code).second) return;
  code.hooked_in_file.clear();
  for (const auto* callee : code.callees) {
    ScriptCode* const inner = find(*callee);
    if (inner == nullptr) continue;
    sort(*inner, met, sorted);
    auto& hooked = code.hooked_in_file;
    const bool is_new = std::find(hooked.begin(), hooked.end(), inner) == hooked.end();
    if (inner->has_hooks_in_file() && is_new) hooked.push_back(inner);
    code.asks.cpu = code.asks.cpu || inner->asks.cpu;
    code.asks.gpu = code.asks.gpu || inner->asks.gpu;
  }
  sorted.push_back(&code);
}

std::vector<ScriptCode*> Codes::sorted() {
  std::unordered_set<const ScriptCode*> met;
  std::vector<ScriptCode*> sorted;
  for (auto& entry : codes_) sort(entry.second.code, met, sorted);
  return sorted;
}

// Decides for all code at once which functions have the operators, so that a caller's variant always shows
// how its callees were compiled.
std::vector<Codes::Change> Codes::changes() {
  const std::vector<ScriptCode*> sorted = this->sorted();
  std::unordered_set<const ScriptCode*> around;  // functions that have hooks or call such a function
  for (auto* code : sorted) {
    bool is_around = code->doors != 0;
    for (const auto* callee : code->callees) {
      const ScriptCode* const inner = find(*callee);
      is_around = is_around || (inner != nullptr && around.count(inner) != 0);
    }
    if (is_around) around.insert(code);
  }
  std::unordered_set<const ScriptCode*> touched = around;  // and all their callees
  for (auto code = sorted.rbegin(); code != sorted.rend(); ++code) {
    if (touched.count(*code) == 0) continue;
    for (const auto* callee : (*code)->callees) {
      if (const ScriptCode* const inner = find(*callee)) touched.insert(inner);
    }
  }
  // Removing hooks one by one must not recompile everything each time: operators without hooks stay until the
  // last hook around them is gone.
  const bool only_restore = !opened_;
  // Neither must attaching to one set of modules after the other. All variants are kept, so their number is
  // limited.
  constexpr std::size_t kMostVariants = 8;

  std::vector<Change> changes;
  for (bool is_settled = false; !is_settled;) {
    is_settled = true;
    changes.clear();
    Inside inside;
    for (auto* code : sorted) {
      auto& functions = inside[&code->function()];
      functions.insert(&code->function());
      for (const auto* callee : code->callees) {
        if (const auto found = inside.find(callee); found != inside.end()) {
          functions.insert(found->second.begin(), found->second.end());
        }
      }
      Variant next;
      for (const auto* function : functions) {
        const ScriptCode& inner = *find(*function);
        Sides sides{inner.inputs != 0, inner.outputs != 0};
        if (touched.count(&inner) != 0) {
          if (only_restore) sides = sides | inner.sides();
          if (inner.always) sides = {true, true};
        }
        if (sides.any()) next.emplace_back(function, sides);
      }
      std::sort(next.begin(), next.end());
      if (next == code->current()) continue;
      if (code->variants() > kMostVariants && !code->knows(next) && prefer_all(functions)) is_settled = false;
      changes.push_back({code, code->current(), std::move(next)});
    }
  }
  return changes;
}

bool Codes::prefer_all(const std::unordered_set<const GraphFunction*>& inside) {
  bool is_news = false;
  for (const auto* function : inside) {
    ScriptCode& code = *find(*function);
    if (!code.hookable || code.always) continue;
    code.always = is_news = true;
  }
  return is_news;
}

void Codes::compile() {
  if (!opened_ && !closed_) return;
  forget_dead();
  std::vector<std::shared_ptr<CompilationUnit>> alive;
  for (const auto& unit : units_) alive.push_back(unit.second.first.lock());

  const std::vector<Change> todo = changes();
  for (const auto& change : todo) change.code->remember();
  std::size_t done = 0;
  try {
    for (; done < todo.size(); ++done) todo[done].code->exchange(todo[done].next);
    for (const auto& change : todo) {
      if (change.code->doors != 0) change.code->check();
    }
  } catch (...) {
    for (std::size_t i = 0; i < done; ++i) todo[i].code->exchange(todo[i].former);
    throw;
  }
  opened_ = closed_ = false;
}

/// The code of one method of a module while it has hooks.
class ScriptDoor final : public hooks::extend::Door {
 public:
  explicit ScriptDoor(const model::ModuleRef& module);
  ~ScriptDoor() override {
    script_table().erase(*entry_);
    take(Sides());
    if (unit_.expired()) return;
    for (const auto* function : functions_) Codes::instance().close(*function);
  }
  hooks::extend::Gate& gate() noexcept override { return entry_->gate; }
  void show(const hooks::extend::Plan& plan) override {
    const bool counts = plan.forward_pre_begin != 0;
    // Gradients need both sides: a call puts their hooks on its outputs.
    const bool whole = counts || plan.has_backward_output();
    take({plan.wants_inputs || whole, plan.wants_outputs});
  }
  bool expired() const noexcept override { return object_.expired(); }

 private:
  /// The hooks see these sides of each call.
  void take(Sides sides) noexcept {
    const Sides former = std::exchange(sides_, sides);
    if (unit_.expired()) return;
    for (const auto* function : functions_) Codes::instance().change(*function, former, sides);
  }

  // Weak: the object dies with the model, but its memory stays, so that no other object gets its address.
  c10::weak_intrusive_ptr<c10::ivalue::Object> object_;
  std::vector<GraphFunction*> functions_;
  std::weak_ptr<CompilationUnit> unit_;
  hooks::extend::InterposedEntry* entry_ = nullptr;
  Sides sides_ = {};
};

ScriptDoor::ScriptDoor(const model::ModuleRef& module)
    : object_(module.script()._ivalue()), unit_(module.script().type()->compilation_unit()) {
  const int method = method_number(module.method());
  const auto unit = unit_.lock();
  const auto root = module.root().script().type()->compilation_unit();
  for (auto* function : functions_of(module.script(), module.method())) {
    auto* graph_function = torch::jit::tryToGraphFunction(*function);
    TORCH_CHECK_NOT_IMPLEMENTED(
        graph_function != nullptr, "hooks::attach: ", module.method(), " of \"", module.path(), "\" (",
        module.type(),
        ") is not TorchScript code, because it was lowered to another backend; load the model as it was "
        "before lowering.");
    functions_.push_back(graph_function);
  }
  Codes& codes = Codes::instance();
  codes.learn(root);
  codes.learn(unit);
  for (const auto* function : functions_) codes.check_name(*function, module);
  entry_ = &script_table().insert(script_key(object_.lock().get(), method), {});
  for (const auto* function : functions_) codes.open(*function, method);
}

/// Registers with the kernel what this library knows, when it is loaded.
struct Registration {
  Registration() {
    static const auto& models = *new Models;  // the kernel may ask it after static objects are gone
    static auto& doors = *new ScriptDoors;
    model::extend::set_script_models(models);
    hooks::extend::add_door_kind(doors);
  }
} const registration;

}  // namespace

const void* ScriptDoors::key_of(const model::ModuleRef& module) const {
  if (!module.scripted()) return nullptr;
  return script_key(module.script()._ivalue().get(), method_number(module.method()));
}

void ScriptDoors::open(const model::ModuleRef& module, const std::string& /*named*/,
                       hooks::extend::OpenDoors& doors) {
  // The key is one method's, which has one door.
  if (!module.scripted() || !doors.doors.empty()) return;
  doors.doors.push_back(std::make_unique<ScriptDoor>(module));
}

void ScriptDoors::settle() {
  Codes::instance().compile();
}

}  // namespace torchtap::torchscript::detail

/// Names this library to the linker, which may leave it out otherwise (CMakeLists.txt).
extern "C" TORCHTAP_API const bool torchtap_torchscript = true;
