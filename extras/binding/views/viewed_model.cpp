// Models of Python as views see them.

#include "viewed_model.hpp"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <optional>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/walk.hpp>

namespace torchtap::python {
namespace {

using Definition = void (*)(py::module_&);

/// By component.
std::map<std::string, Definition>& definitions() {
  static auto* all = new std::map<std::string, Definition>;
  return *all;
}

/// Hides operations from views, in a `with`.
struct Unseen {
  std::optional<c10::impl::ExcludeDispatchKeyGuard> guard;
};

}  // namespace

ViewedModel::ViewedModel(py::handle model) {
  if (py::isinstance(model, py::module_::import("torch.jit").attr("ScriptModule"))) {
    modules_ = model::walk_modules(py::cast<torch::jit::Module>(model.attr("_c")));
    return;
  }
  root_ = stand_in_for(model, /*tensors=*/true);
  std::vector<std::string> scripted;
  for (const model::ModuleRef& module : modules_of(*root_, /*children=*/false)) {
    if (!stand_in_of(module).scripted()) {
      modules_.push_back(module);
      continue;
    }
    scripted.push_back(module.path());
    auto node = std::make_shared<model::extend::Node>(model::extend::Access::node(module));
    node->doors = {};
    modules_.push_back(model::extend::Access::make(std::move(node)));
  }
  if (!scripted.empty())
    notes_.push_back(c10::str("TorchScript's code calls no hooks of Python; what is inside of ",
                              base::quoted(scripted), " is not shown."));
}

py::list ViewedModel::hooks(bool now) const {
  py::list hooks;
  if (root_ == nullptr) return hooks;
  // A view holds no model.
  TORCH_CHECK(root_->alive(), "torchtap: the ", root_->type(),
              " that this view is of is gone; keep a reference to the model while you use it.");
  for (const model::ModuleRef& module : modules_) {
    StandIn& stand_in = stand_in_of(module);
    // A module that another one has replaced may be gone.
    if (stand_in.scripted() || !stand_in.has_forward() || !stand_in.alive()) continue;
    // Calls are counted in each forward of the model.
    if (now && &stand_in != root_.get() && hooks::extend::is_idle(stand_in.torchtap_gate())) continue;
    Hook hook(std::static_pointer_cast<StandIn>(stand_in.shared_from_this()), root_, /*paired=*/true,
              /*first_only=*/false);
    hooks.append(py::make_tuple(stand_in.module(), std::move(hook)));
  }
  return hooks;
}

std::string ViewedModel::type_now(const std::string& path) const {
  if (root_ == nullptr) return "";
  for (const model::ModuleRef& module : modules_) {
    const StandIn& stand_in = stand_in_of(module);
    if (module.path() != path || stand_in.scripted() || !stand_in.alive()) continue;
    return py::cast<std::string>(py::type::handle_of(stand_in.module()).attr("__name__"));
  }
  return "";
}

DefinedView::DefinedView(const char* component, void (*define)(py::module_&)) {
  definitions().emplace(component, define);
}

void define_views(py::module_& module) {
  module.def("operations_key", [] { return base::operations_key; });
  py::class_<Unseen>(module, "Unseen")
      .def(py::init([] { return std::make_unique<Unseen>(); }))
      .def("__enter__", [](Unseen& one) { one.guard.emplace(base::operations_key); })
      .def("__exit__", [](Unseen& one, const py::args&) { one.guard.reset(); });
  py::list components;
  for (const auto& [component, define] : definitions()) {
    define(module);
    components.append(component);
  }
  module.attr("views") = py::tuple(components);
}

}  // namespace torchtap::python
