#include "stand_in.hpp"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include <torchtap/base/expose.hpp>
#include <torchtap/base/of_thread.hpp>
#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/walk.hpp>

#include "callable.hpp"
#include "found_tensors.hpp"
#include "until_recorded.hpp"

namespace torchtap::base {

struct ModuleBuffers {
  friend auto exposed(ModuleBuffers);
};
template struct Expose<ModuleBuffers, &torch::nn::Module::buffers_>;

struct ModuleMode {
  friend auto exposed(ModuleMode);
};
template struct Expose<ModuleMode, &torch::nn::Module::is_training_>;

}  // namespace torchtap::base

namespace torchtap::python {
namespace {

/// Adds the submodules; `open` are those above, because a module may be registered below itself.
void add_children(StandIn& parent, std::unordered_map<PyObject*, std::shared_ptr<StandIn>>& known,
                  std::vector<PyObject*>& open, bool tensors) {
  if (tensors) parent.hold_tensors();
  if (parent.scripted()) return;
  open.push_back(parent.module().ptr());
  for (const auto& [name, child] : py::dict(parent.module().attr("_modules"))) {
    const bool is_above = std::find(open.begin(), open.end(), child.ptr()) != open.end();
    if (child.is_none() || is_above) continue;
    auto& stand_in = known[child.ptr()];
    const bool is_new = stand_in == nullptr;
    if (is_new) stand_in = std::make_shared<StandIn>(child);
    const auto held = stand_in;
    parent.register_module(py::cast<std::string>(name), held);
    if (is_new) add_children(*held, known, open, tensors);
  }
  open.pop_back();
}

/// The stand-ins of the process by number.
struct Numbered {
  std::mutex mutex;
  std::int64_t last = 0;
  std::unordered_map<std::int64_t, std::weak_ptr<StandIn>> all;
  std::unordered_map<std::int64_t, const std::string*> unseen;  // why, a text of these
  std::set<std::string> reasons;

  static Numbered& instance() {
    static auto* numbered = new Numbered;  // threads may outlive static objects
    return *numbered;
  }
};

/// A call between its hooks before forward and those after it.
struct Running {
  explicit Running(std::shared_ptr<StandIn> of) : module(std::move(of)), call(module->torchtap_gate()) {}

  std::shared_ptr<StandIn> module;
  hooks::extend::Call call;
  FoundTensors inputs;
  const void* stack = nullptr;  ///< where the thread's stack was
};

/// The running calls of a thread, the innermost last.
using Calls = std::vector<std::unique_ptr<Running>>;

/// Takes the innermost call of the module out; null if there is none.
std::unique_ptr<Running> take(Calls& calls, const StandIn& module) {
  const auto found = std::find_if(calls.rbegin(), calls.rend(),
                                  [&](const auto& one) { return one->module.get() == &module; });
  if (found == calls.rend()) return nullptr;
  auto call = std::move(*found);
  calls.erase(std::next(found).base());
  return call;
}

/// Drops calls that ended without hooks after them, as KeyboardInterrupt ends them: those that were deeper in
/// the stack than the one that begins at `stack`, and an earlier one of its module there, with all inside.
void drop_ended(Calls& calls, const StandIn& module, const void* stack) {
  constexpr std::ptrdiff_t kSurely = 4096;  // hooks are reached in two ways, of a different depth
  const auto* const here = static_cast<const char*>(stack);
  const auto ended = [&](const std::unique_ptr<Running>& one) {
    const auto* const there = static_cast<const char*>(one->stack);
    return there + kSurely < here || (one->module.get() == &module && there <= here);
  };
  calls.erase(std::find_if(calls.begin(), calls.end(), ended), calls.end());
}

/// Gives Python's lock away, for which threads may wait that hold one of ours.
class WithoutLock {
 public:
  WithoutLock() : state_(PyEval_SaveThread()) {}
  ~WithoutLock() { PyEval_RestoreThread(state_); }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

/// Runs hooks after a forward that had none before it.
void run_after(StandIn& module, hooks::extend::CallTensors& outputs, hooks::extend::CallTensors* inputs) {
  hooks::extend::Call call(module.torchtap_gate());
  if (call.idle()) return;
  call.own_plan();  // forward is not inside of this call, whose end would be taken for that of forward
  if (inputs == nullptr) {
    call.after(outputs);
  } else {
    call.after(outputs, *inputs);
  }
}

/// Runs hooks without Python's lock, hidden from modes unless tensors need Python to compute.
template <class Run>
void run(bool plain, const Run& hooks) {
  stop_in_python([&] {
    const WithoutLock unlocked;
    const Hidden unseen(/*python_too=*/plain);
    hooks();
  });
}

/// Whether the hooks of a call would put tensors into it that torch.jit.trace takes for constants.
bool would_change_a_trace(bool paired) {
  return paired && torch::jit::tracer::isTracing();
}

}  // namespace

StandIn::StandIn(py::handle module)
    : module_(module.ptr()),
      alive_(module),
      type_(py::cast<std::string>(py::type::handle_of(module).attr("__name__"))),
      scripted_(py::isinstance(module, py::module_::import("torch.jit").attr("ScriptModule"))) {
  if (scripted_) {
    type_ = py::cast<std::string>(py::getattr(module, "original_name", py::str(type_)));
  } else {
    const py::object base = py::module_::import("torch.nn").attr("Module");
    has_forward_ = !py::type::handle_of(module).attr("forward").is(base.attr("forward")) ||
                   module.attr("__dict__").contains("forward");
  }
}

StandIn::~StandIn() {
  // Without Python's lock, for which another thread may wait under one of ours, a few bytes stay.
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) alive_.release();
  Numbered& numbered = Numbered::instance();
  const std::lock_guard lock(numbered.mutex);
  const auto mine = numbered.all.find(number_);
  if (mine != numbered.all.end() && mine->second.expired()) numbered.all.erase(mine);
}

void StandIn::hold_tensors() {
  const auto hold = [&](const char* method, torch::OrderedDict<std::string, at::Tensor>& held) {
    for (const py::handle one : module().attr(method)("", /*recurse=*/scripted_)) {
      const auto named = py::reinterpret_borrow<py::tuple>(one);
      held.insert(py::cast<std::string>(named[0]), py::cast<at::Tensor>(named[1]));
    }
  };
  hold("named_parameters", parameters_);
  hold("named_buffers", this->*exposed(base::ModuleBuffers{}));
  viewed_ = true;
  take_mode(module());
  try {
    described_ = py::cast<std::string>(module().attr("extra_repr")());
  } catch (const py::error_already_set&) {  // the user's code; it is only a text for people
  } catch (const py::cast_error&) {
  }
}

void StandIn::take_mode(py::handle module) {
  if (viewed_) this->*exposed(base::ModuleMode{}) = py::cast<bool>(module.attr("training"));
}

bool StandIn::alive() const {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* alive = nullptr;
  PyWeakref_GetRef(alive_.ptr(), &alive);
  Py_XDECREF(alive);
#else
  PyObject* const alive = PyWeakref_GetObject(alive_.ptr());
#endif
  return alive == module_;
}

bool StandIn::stands_for(py::handle module) const {
  // Python gives the address of a module that is gone to another one, say a copy of it.
  return (module.ptr() == module_ && alive()) || py::hasattr(module, "_is_replica");
}

std::shared_ptr<StandIn> stand_in_for(py::handle model, bool tensors) {
  auto root = std::make_shared<StandIn>(model);
  std::unordered_map<PyObject*, std::shared_ptr<StandIn>> known{{model.ptr(), root}};
  std::vector<PyObject*> open;
  add_children(*root, known, open, tensors);
  return root;
}

std::vector<model::ModuleRef> modules_of(StandIn& root, bool children) {
  std::vector<model::ModuleRef> modules;
  for (const auto& module : children ? model::walk_children(root) : model::walk_modules(root)) {
    auto node = std::make_shared<model::extend::Node>(model::extend::Access::node(module));
    const auto& stand_in = static_cast<const StandIn&>(*node->module);
    node->type = stand_in.type();
    node->has_forward = stand_in.has_forward();
    modules.push_back(model::extend::Access::make(std::move(node)));
  }
  return modules;
}

StandIn& stand_in_of(const model::ModuleRef& module) {
  return static_cast<StandIn&>(module.module());
}

std::string StandIn::torchtap_why_unseen() const {
  Numbered& numbered = Numbered::instance();
  const std::lock_guard lock(numbered.mutex);
  const auto found = numbered.unseen.find(number_);
  return found == numbered.unseen.end() ? "" : *found->second;
}

void leave_out(std::int64_t number, const std::string& why) {
  Numbered& numbered = Numbered::instance();
  const std::lock_guard lock(numbered.mutex);
  numbered.unseen[number] = &*numbered.reasons.insert(why).first;
}

std::int64_t Hook::number_among(py::list known) const {
  Numbered& numbered = Numbered::instance();
  std::vector<std::shared_ptr<StandIn>> others;  // which end after the lock, if nothing else holds them
  const std::lock_guard lock(numbered.mutex);
  for (const py::handle one : known) {
    const auto number = py::cast<std::int64_t>(one);
    auto& standing = numbered.all[number];
    others.push_back(standing.lock());
    if (others.back() != nullptr && !hooks::extend::is_idle(others.back()->torchtap_gate())) continue;
    standing = module_;
    module_->number(number);
    return number;
  }
  const std::int64_t number = ++numbered.last;
  numbered.all[number] = module_;
  module_->number(number);
  known.append(number);
  return number;
}

bool is_recomputed() {
  if (torch::autograd::get_current_graph_task_id() == -1) return false;  // not in a backward
  const py::gil_scoped_acquire locked;
  return py::cast<bool>(py::module_::import("torchtap._hooks").attr("in_checkpoint")());
}

py::object Hook::before(py::handle module, const py::tuple& arguments, const py::dict& named) const {
  if (idle() || !module_->stands_for(module) || would_change_a_trace(paired_)) return py::none();
  if (first_only_ && is_recomputed()) return py::none();
  const void* const stack = __builtin_frame_address(0);
  module_->take_mode(module);
  if (paired_) drop_ended(base::of_thread<Calls>(), *module_, stack);
  auto running = std::make_unique<Running>(module_);
  running->stack = stack;
  if (running->call.idle()) return py::none();
  running->call.own_plan();  // the call may never end
  FoundTensors& inputs = running->inputs;
  if (running->call.wants_inputs()) {
    if (paired_) {
      for (const py::handle argument : arguments) inputs.add_argument(argument);
      for (const auto& [name, argument] : named) inputs.add_argument(argument);
    } else {
      inputs.add(arguments.ptr());
      inputs.add(named.ptr());
    }
    if (!inputs.computed()) return py::none();
    const hooks::extend::CallsAround around(paired_ ? static_cast<int>(base::of_thread<Calls>().size()) : 0);
    run(inputs.plain(), [&] { running->call.before(inputs.see()); });
  }
  py::object anew = py::none();
  if (inputs.replaced()) anew = inputs.with_replaced(arguments, named);
  if (paired_) base::of_thread<Calls>().push_back(std::move(running));
  return anew;
}

py::object Hook::after(py::handle module, const py::object& output) const {
  if (!module_->stands_for(module)) return py::none();
  FoundTensors outputs;
  if (paired_) {
    const auto running = take(base::of_thread<Calls>(), *module_);
    if (running == nullptr || output.is_none()) return py::none();  // after an exception, too
    outputs.add(output.ptr());
    if (!outputs.computed()) return py::none();
    run(outputs.plain(), [&] { running->call.after(outputs.see()); });
  } else {
    if (idle() || (first_only_ && is_recomputed())) return py::none();
    outputs.add(output.ptr());
    if (!outputs.computed()) return py::none();
    run(outputs.plain(), [&] { run_after(*module_, outputs.see(), nullptr); });
  }
  return py::none();
}

py::object Hook::after(py::handle module, const py::tuple& arguments, const py::dict& named,
                       const py::object& output) const {
  if (idle() || !module_->stands_for(module) || (first_only_ && is_recomputed())) return py::none();
  FoundTensors inputs, outputs;
  inputs.add(arguments.ptr());
  inputs.add(named.ptr());
  outputs.add(output.ptr());
  if (!inputs.computed() || !outputs.computed()) return py::none();
  run(inputs.plain() && outputs.plain(), [&] { run_after(*module_, outputs.see(), &inputs.see()); });
  return py::none();
}

void forget_idle_calls() {
  Calls& calls = base::of_thread<Calls>();
  const auto idle = [](const std::unique_ptr<Running>& one) {
    return hooks::extend::is_idle(one->module->torchtap_gate());
  };
  calls.erase(std::remove_if(calls.begin(), calls.end(), idle), calls.end());
}

void run_numbered(const c10::List<std::optional<at::Tensor>>& inputs,
                  const c10::List<std::optional<at::Tensor>>& outputs, bool before, std::int64_t number) {
  std::shared_ptr<StandIn> module;
  {
    Numbered& numbered = Numbered::instance();
    const std::lock_guard lock(numbered.mutex);
    const auto found = numbered.all.find(number);
    if (found != numbered.all.end()) module = found->second.lock();
  }
  if (module == nullptr) return;
  FoundTensors in, out;
  for (const auto& input : inputs) in.add(std::optional<at::Tensor>(input).value_or(at::Tensor()));
  for (const auto& output : outputs) out.add(std::optional<at::Tensor>(output).value_or(at::Tensor()));
  stop_in_python([&] {
    if (!before) return run_after(*module, out.see(), &in.see());
    hooks::extend::Call call(module->torchtap_gate());
    if (call.idle()) return;
    call.own_plan();
    call.before(in.see());
  });
}

}  // namespace torchtap::python
