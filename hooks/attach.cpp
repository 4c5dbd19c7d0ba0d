// Attaches and removes hooks, and explains why a module cannot be hooked.

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <typeinfo>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/detail/parameter_gradient.hpp>
#include <torchtap/hooks/detail/registry.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/walk.hpp>

namespace torchtap::hooks {
namespace {

int& open_batches() noexcept {
  static thread_local int batches = 0;
  return batches;
}

/// Explains why the module cannot be hooked and how to change that.
model::extend::Obstacle obstacle_of(const model::ModuleRef& module) {
  if (module.exported()) {
    return {"not tapped",
            "none of its tensors was tapped when the model was exported; tap it with "
            "torchtap.export.tapped."};
  }
  const torch::nn::Module& inside = module.module();
  const std::string type = c10::demangle(typeid(inside).name());
  if (const auto* sequence = dynamic_cast<const torch::nn::SequentialImpl*>(&inside)) {
    if (model::extend::is_its_entries(*sequence)) {
      return {"no entries",
              "a Sequential is hooked through its entries, and it has no entries yet; add them first."};
    }
    if (model::extend::interposed_calls() == nullptr) {
      return {
          "derives from Sequential",
          "its type derives from torch::nn::Sequential and may have a forward of its own, whose result is "
          "not that of its entries. To make it reachable, link the program with torchtap::transparent; "
          "declare its type with TORCHTAP_MODULE instead of TORCH_MODULE; make it an entry of a "
          "torch::nn::Sequential; or, if it has no forward of its own, make it a torch::nn::Sequential."};
    }
  }
  if (const model::extend::InterposedCalls* calls = model::extend::interposed_calls())
    return calls->why_not(inside);
  const std::string reason =
      "its forward is called directly, where LibTorch offers no place for a hook. To make it reachable, ";
  const std::string or_entry = "; or make it an entry of a torch::nn::Sequential.";
  if (type.compare(0, 11, "torch::nn::") == 0) {
    return {"called directly",
            c10::str(reason, "link the program with torchtap::transparent; declare it as torchtap::nn::",
                     module.type(), " instead of torch::nn::", module.type(), or_entry)};
  }
  // By LibTorch's convention a type has a holder if its name ends with "Impl".
  const std::string& name = module.type();
  const std::size_t impl = type.size() < 4 ? 0 : type.size() - 4;
  if (type.compare(impl, 4, "Impl") == 0 && !inside.weak_from_this().expired()) {
    return {"called directly",
            c10::str(reason,
                     "declare its type with TORCHTAP_MODULE instead of TORCH_MODULE, and make it with that "
                     "holder; link the program "
                     "with torchtap::transparent, where a holder of TORCH_MODULE made it and not "
                     "std::make_shared",
                     or_entry)};
  }
  return {"called directly",
          c10::str(reason, "declare a holder of its type, `TORCHTAP_MODULE_IMPL(", name, "Holder, ", type,
                   ");`, and make it with that, `", name, "Holder module(arguments);`, not ",
                   inside.weak_from_this().expired() ? "as an object of its type" : "with std::make_shared",
                   or_entry)};
}

std::string quoted(const model::ModuleRef& module) {
  return c10::str("\"", module.path(), "\" (", module.type(), ")");
}

void check_has_forward(const model::ModuleRef& module) {
  TORCH_CHECK_VALUE(!model::extend::Access::node(module).uncalled, "hooks::attach: ", quoted(module),
                    " is used without a call: the MultiheadAttention around it computes with its parameters, "
                    "so no hook would run. What it would return is the first output of that "
                    "MultiheadAttention; attach there.");
  TORCH_CHECK_VALUE(module.has_forward(), "hooks::attach: ", quoted(module), " has no ", module.method(),
                    ", so it is never called; attach to its submodules.");
}

void check_computes_gradients(const model::ModuleRef& module) {
  TORCH_CHECK_VALUE(!module.exported(), "hooks::attach: ", quoted(module),
                    " is a module of an exported model, in which no gradients are computed: AOTInductor "
                    "compiles forward alone. Record gradients on the model that was exported.");
}

/// Throws unless the code of an exported model runs hooks of this kind around the module.
void check_taps(const model::ModuleRef& module, Kind kind) {
  if (kind == Kind::backward_input || kind == Kind::backward_output) check_computes_gradients(module);
  const model::extend::Taps& taps = *model::extend::Access::node(module).taps;
  const bool sees_inputs = kind != Kind::forward_output, sees_outputs = kind != Kind::forward_pre;
  TORCH_CHECK_VALUE(taps.inputs || !sees_inputs, "hooks::attach: the inputs of \"", module.path(), "\" (",
                    module.type(),
                    ") were not tapped when the model was exported; export it with "
                    "torchtap.export.tapped(model, inputs=True).");
  TORCH_CHECK_VALUE(taps.outputs || !sees_outputs, "hooks::attach: the outputs of \"", module.path(), "\" (",
                    module.type(),
                    ") were not tapped when the model was exported; export it with "
                    "torchtap.export.tapped(model, outputs=True).");
}

}  // namespace

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    remove();
    hook_ = std::move(other.hook_);
    scope_ = std::move(other.scope_);
  }
  return *this;
}

void Handle::release() noexcept {
  if (hook_ == nullptr) return;
  hook_->kept_scope = std::move(scope_);
  hook_.reset();
}

void Handle::remove() noexcept {
  if (hook_ == nullptr) return;
  const DeferredCompile batch;
  if (hook_->leaf.has_value()) {
    detail::detach_from_leaf(*hook_);
  } else {
    detail::Registry::instance().detach(*hook_);
  }
  hook_.reset();
  scope_.reset();
}

bool Handle::attached() const noexcept {
  if (hook_ == nullptr) return false;
  return hook_->leaf.has_value() ? !hook_->leaf->expired() : detail::Registry::instance().attached(*hook_);
}

DeferredCompile::DeferredCompile() noexcept {
  ++open_batches();
}

DeferredCompile::~DeferredCompile() {
  try {
    commit();
  } catch (const std::exception&) {  // a destructor must not throw; commit() reports the failure
  }
}

void DeferredCompile::commit() {
  if (!open_) return;
  open_ = false;
  if (--open_batches() == 0) detail::Registry::instance().settle();
}

void check_reachable(const std::vector<model::ModuleRef>& modules) {
  constexpr std::size_t kSome = 5;
  std::vector<const model::ModuleRef*> missed;
  std::string others;
  for (const auto& module : modules) {
    check_has_forward(module);
    if (module.reachable()) continue;
    missed.push_back(&module);
    if (missed.size() == 1 || missed.size() > kSome) continue;
    others += c10::str(missed.size() == 2 ? "" : ", ", quoted(module), ", ", obstacle_of(module).brief);
  }
  if (missed.empty()) return;
  if (missed.size() > kSome) others += c10::str(" and ", missed.size() - kSome, " more");
  if (!others.empty()) others = " Nor can " + others + ".";
  const std::size_t reached = modules.size() - missed.size();
  if (modules.size() > 1) others += c10::str(" ", reached, " of the ", modules.size(), " modules can.");
  TORCH_CHECK_VALUE(false, "hooks::attach: ", quoted(*missed.front()),
                    " cannot be reached, and selectors::reachable() leaves it out: ",
                    obstacle_of(*missed.front()).text, others);
}

Handle attach(const model::ModuleRef& module, Kind kind, Callback callback, Place place) {
  return attach(module, kind, std::move(callback), LeftOut(), place);
}

Handle attach(const model::ModuleRef& module, Kind kind, Callback callback, LeftOut left_out, Place place) {
  TORCH_CHECK_VALUE(callback != nullptr, "hooks::attach: the callback for ", quoted(module), " is empty.");
  TORCH_CHECK_VALUE(kind != Kind::backward_parameter, "hooks::attach: Kind::backward_parameter of ",
                    quoted(module),
                    " is for one parameter; name it instead: hooks::attach(module, \"weight\", callback).");
  check_reachable({module});
  if (module.exported()) check_taps(module, kind);
  auto hook = std::make_shared<detail::Hook>();
  hook->kind = kind;
  hook->callback = std::move(callback);
  hook->left_out = std::move(left_out);
  hook->path = module.path();
  hook->type = module.type();
  hook->on_root = module == module.root();
  DeferredCompile batch;
  std::shared_ptr<detail::ScopeHold> scope;
  if (!hook->on_root) scope = detail::Registry::instance().scope(module.root());
  if (scope != nullptr) hook->scope = scope->hook;
  detail::Registry::instance().attach(module, hook, place);
  Handle handle(std::move(hook), std::move(scope));
  batch.commit();
  return handle;
}

Handle attach(const model::ModuleRef& module, const std::string& parameter, Callback callback) {
  const std::string path = module.path().empty() ? parameter : module.path() + "." + parameter;
  TORCH_CHECK_VALUE(callback != nullptr, "hooks::attach: the callback for \"", path, "\" is empty.");
  check_computes_gradients(module);
  std::vector<std::string> names;
  for (const auto& held : model::held_by(module)) {
    if (held.buffer) continue;
    names.push_back(held.name);
    if (held.name != parameter) continue;
    auto hook = std::make_shared<detail::Hook>();
    hook->kind = Kind::backward_parameter;
    hook->callback = std::move(callback);
    hook->path = path;
    hook->type = module.type();
    detail::attach_to_leaf(held.tensor, hook);
    return {std::move(hook), nullptr};
  }
  TORCH_CHECK_VALUE(false, "hooks::attach: ", quoted(module), " has no parameter \"", parameter,
                    "\" of its own; it has ", names.empty() ? "none" : base::quoted(names), ".");
}

Handle attach(torch::nn::Module& module, Kind kind, Callback callback, Place place) {
  return attach(model::walk_modules(module).front(), kind, std::move(callback), place);
}

Handle attach(torch::nn::Module& module, const std::string& parameter, Callback callback) {
  return attach(model::walk_modules(module).front(), parameter, std::move(callback));
}

Handle attach(torch::nn::AnyModule& module, Kind kind, Callback callback, Place place) {
  return attach(model::ref(module), kind, std::move(callback), place);
}

Handle attach(const torch::jit::Module& module, Kind kind, Callback callback, const std::string& method,
              Place place) {
  return attach(model::walk_modules(module, method).front(), kind, std::move(callback), place);
}

Handle attach(const torch::jit::Module& module, const std::string& parameter, Callback callback) {
  return attach(model::walk_modules(module).front(), parameter, std::move(callback));
}

}  // namespace torchtap::hooks
