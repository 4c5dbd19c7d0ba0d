#pragma once

/// Provides the modules of a model as a range-v3 view.

#include <range/v3/view/interface.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/extend/has_forward.hpp>
#include <torchtap/model/extend/module_in.hpp>
#include <torchtap/model/walk.hpp>

namespace torchtap::selectors {

class ModuleView;

/// Holds for models that list their modules themselves, as `exported::Model` does.
template <class Model>
using IfListsModules =
    std::enable_if_t<std::is_same_v<decltype(std::declval<const Model&>().modules()), ModuleView>>;

/// The modules of a model in pre-order, the root at index 0 with path "": a range-v3 view, cheap to copy, and
/// it may be piped as it is returned. See `model::walk_modules`.
///
///     for (const auto& module : modules(*net) | ranges::views::filter(leaves())) …
///
/// Made of whatever a model is, so that functions with a parameter of this type take every kind of model. A
/// snapshot of the model's structure, not of its parameters: modules added later are not in it.
class TORCHTAP_API ModuleView : public ranges::view_interface<ModuleView> {
 public:
  ModuleView() : modules_(std::make_shared<const std::vector<model::ModuleRef>>()) {}
  /// A view of these modules.
  ModuleView(std::vector<model::ModuleRef> modules)  // NOLINT: implicit, as all of these
      : modules_(std::make_shared<const std::vector<model::ModuleRef>>(std::move(modules))) {}
  /// A view of a model.
  ModuleView(torch::nn::Module& model) : ModuleView(model::walk_modules(model)) {}  // NOLINT
  /// A view of a model whose own type is known: the compiler knows whether it has a `forward`. A root that
  /// only holds other networks has none.
  template <class Model,
            class = std::enable_if_t<std::is_base_of_v<torch::nn::Module, Model> &&
                                     !std::is_same_v<torch::nn::Module, Model> && !std::is_const_v<Model>>>
  ModuleView(Model& model) : ModuleView(noted(model)) {}  // NOLINT
  /// A view of the module in a holder (`torch::nn::Sequential`, a `TORCH_MODULE`).
  template <class Holder, class = typename Holder::ContainedType, class = void>
  ModuleView(const Holder& model) : ModuleView(model::extend::module_in(model)) {}  // NOLINT
  /// A view of a shared model, as `std::make_shared<Net>()` makes it. Throws `c10::ValueError` for a null
  /// pointer.
  template <class Model,
            class = std::enable_if_t<std::is_base_of_v<torch::nn::Module, Model> && !std::is_const_v<Model>>>
  ModuleView(const std::shared_ptr<Model>& model) : ModuleView(model::extend::module_in(model)) {}  // NOLINT
  /// A view of a TorchScript model; hooks run around `method`. "forward" includes the copies ("forward1", …)
  /// that tracing makes for a module that is called several times.
  ModuleView(const torch::jit::Module& model, const std::string& method = "forward")  // NOLINT
      : ModuleView(model::walk_modules(model, method)) {}
  /// A view of a model that lists its modules itself, as `exported::Model` does.
  template <class Model, class = IfListsModules<Model>, class = void, class = void>
  ModuleView(const Model& model) : ModuleView(model.modules()) {}  // NOLINT

  auto begin() const noexcept { return modules_->begin(); }
  auto end() const noexcept { return modules_->end(); }
  /// The modules themselves.
  const std::vector<model::ModuleRef>& vector() const& noexcept { return *modules_; }
  /// For a view that ends with the expression, as in `for (auto& module : modules(*net).vector())`.
  std::vector<model::ModuleRef> vector() && { return *modules_; }

 private:
  template <class Model>
  static torch::nn::Module& noted(Model& model) {
    model::extend::note_model<Model>();
    return model;
  }

  std::shared_ptr<const std::vector<model::ModuleRef>> modules_;
};

/// Whether a `T` is a model of some kind, or modules of one.
template <class T>
inline constexpr bool is_model_v = std::is_convertible_v<T&, ModuleView>;

/// All modules of the model.
inline ModuleView modules(ModuleView model) {
  return model;
}
/// The modules of a TorchScript model, around `method`.
inline ModuleView modules(const torch::jit::Module& model, const std::string& method) {
  return {model, method};
}

/// The direct children of the model, counted from 0. See `model::walk_children`.
inline ModuleView children(torch::nn::Module& model) {
  return ModuleView(model::walk_children(model));
}

/// The children of a TorchScript model. Throws `c10::ValueError` for a frozen model, which has no children
/// left.
TORCHTAP_API ModuleView children(const torch::jit::Module& model, const std::string& method = "forward");

/// The children of the module in a holder.
template <class Holder, class = typename Holder::ContainedType>
ModuleView children(const Holder& model) {
  return children(static_cast<torch::nn::Module&>(model::extend::module_in(model)));
}

/// The children of a shared model. Throws `c10::ValueError` for a null pointer.
inline ModuleView children(const std::shared_ptr<torch::nn::Module>& model) {
  return children(model::extend::module_in(model));
}

/// The children of a model that lists its modules itself.
template <class Model, class = IfListsModules<Model>, class = void>
ModuleView children(const Model& model) {
  return model.children();
}

}  // namespace torchtap::selectors
