#pragma once

// Lets C++ walk, select and hook the modules of a Python model.

#include <torch/csrc/utils/pybind.h>
#include <torch/nn/module.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <torchtap/hooks/extend/hook_point.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::python {

namespace py = pybind11;

/// Stands in C++ for a module of a Python model, with the same submodules. It has no forward: PyTorch's hooks
/// on the Python module run the hooks that C++ attaches here.
class StandIn final : public torch::nn::Module, public hooks::extend::HookPoint {
 public:
  explicit StandIn(py::handle module);
  /// Holds the module's parameters and buffers, those inside of a TorchScript module, too, and says what its
  /// `extra_repr` says: for views.
  void hold_tensors();
  /// Holds `tensor` as the parameter `name`.
  void hold(const std::string& name, const at::Tensor& tensor) { parameters_.insert(name, tensor); }
  /// Is in the mode that the module is in, if it holds tensors.
  void take_mode(py::handle module);
  void pretty_print(std::ostream& stream) const override { stream << type_ << '(' << described_ << ')'; }
  ~StandIn() override;

  /// Whether this is the module, or a replica of it that DataParallel made.
  bool stands_for(py::handle module) const;
  /// Whether the module still lives.
  bool alive() const;
  /// By this number code that torch.compile made finds it.
  void number(std::int64_t number) noexcept { number_ = number; }
  /// What `leave_out` was told.
  std::string torchtap_why_unseen() const override;
  /// The module while it is attached to, for `isinstance`.
  py::handle module() const noexcept { return module_; }
  /// The name of its class.
  const std::string& type() const noexcept { return type_; }
  /// Whether its class has a forward.
  bool has_forward() const noexcept { return has_forward_; }
  /// Whether it is a TorchScript module, which takes no hooks.
  bool scripted() const noexcept { return scripted_; }

 private:
  std::int64_t number_ = 0;  // under the lock of all numbers
  PyObject* module_;         // not owned
  py::weakref alive_;
  std::string type_, described_;
  bool scripted_, has_forward_ = true, viewed_ = false;
};

/// Stands in for `model` and the modules below it, but not for those inside of a TorchScript module. With
/// `tensors` it holds their parameters and buffers.
std::shared_ptr<StandIn> stand_in_for(py::handle model, bool tensors = false);
/// The modules for selectors and recorders: all, or the direct children.
std::vector<model::ModuleRef> modules_of(StandIn& root, bool children);
/// The stand-in behind a module of `modules_of`.
StandIn& stand_in_of(const model::ModuleRef& module);

/// A hook of PyTorch that runs those of a stand-in. Copies and pickles of it do nothing, because hooks belong
/// to one module.
class Hook {
 public:
  /// `root` stays alive, too: calls are counted in each of its forwards. `paired`: what comes after forward
  /// needs what came before it. `first_only`: not when a checkpoint runs a forward once more.
  Hook(std::shared_ptr<StandIn> module, std::shared_ptr<StandIn> root, bool paired, bool first_only)
      : module_(std::move(module)), root_(std::move(root)), paired_(paired), first_only_(first_only) {}

  /// PyTorch's forward-pre hook with kwargs. Returns the arguments if one was replaced.
  py::object before(py::handle module, const py::tuple& arguments, const py::dict& named) const;
  /// PyTorch's forward hook, `always_call` if paired. Returns the output if a tensor of it was replaced.
  py::object after(py::handle module, const py::object& output) const;
  /// PyTorch's forward hook with kwargs, for hooks that see the inputs, too.
  py::object after(py::handle module, const py::tuple& arguments, const py::dict& named,
                   const py::object& output) const;
  /// The number of the stand-in, for `run_numbered`: the first of those that its module has had and that no
  /// attached stand-in has, or a new one, which is added. Compiled code has the number in it, and fits again.
  std::int64_t number_among(py::list known) const;
  /// Whether no hook is attached any more.
  bool idle() const noexcept { return hooks::extend::is_idle(module_->torchtap_gate()); }

 private:
  std::shared_ptr<StandIn> module_, root_;
  bool paired_, first_only_;
};

/// Whether torch.utils.checkpoint runs this forward once more, in a backward, for what it did not keep.
bool is_recomputed();

/// Drops what this thread kept for calls of modules that have no hooks any more: an interrupt ends a call
/// without PyTorch's hooks after it.
void forget_idle_calls();

/// Runs the hooks of the stand-in with this number, if it is still there, before a forward or after it. What
/// they replace is lost. For code that torch.compile made, which has no Python objects.
void run_numbered(const c10::List<std::optional<at::Tensor>>& inputs,
                  const c10::List<std::optional<at::Tensor>>& outputs, bool before, std::int64_t number);

/// Says why code that torch.compile made passes by the stand-ins that have this number, now or later.
void leave_out(std::int64_t number, const std::string& why);

}  // namespace torchtap::python
