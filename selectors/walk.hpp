#pragma once

/// Provides the modules of a model as a range-v3 view.

#include <range/v3/view/interface.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/walk.hpp>

namespace torchtap::selectors {

/// The modules of a model as a range-v3 view: cheap to copy, and it may be piped as it is returned.
///
///     for (const auto& module : modules(*net) | ranges::views::filter(leaves())) …
///
/// A snapshot of the model's structure, not of its parameters: modules added later are not in it.
class TORCHTAP_API ModuleView : public ranges::view_interface<ModuleView> {
 public:
  ModuleView() : modules_(std::make_shared<const std::vector<model::ModuleRef>>()) {}
  /// Of these modules.
  explicit ModuleView(std::vector<model::ModuleRef> modules)
      : modules_(std::make_shared<const std::vector<model::ModuleRef>>(std::move(modules))) {}

  auto begin() const noexcept { return modules_->begin(); }
  auto end() const noexcept { return modules_->end(); }
  /// The modules themselves.
  const std::vector<model::ModuleRef>& vector() const& noexcept { return *modules_; }
  /// Of a view that ends with the expression, as in `for (auto& module : modules(*net).vector())`.
  std::vector<model::ModuleRef> vector() && { return *modules_; }

 private:
  std::shared_ptr<const std::vector<model::ModuleRef>> modules_;
};

/// All modules of the model in pre-order, the root at index 0 with path "". See `model::walk_modules`.
inline ModuleView modules(torch::nn::Module& model) {
  return ModuleView(model::walk_modules(model));
}
/// The direct children, counted from 0. See `model::walk_children`.
inline ModuleView children(torch::nn::Module& model) {
  return ModuleView(model::walk_children(model));
}

/// The same for a TorchScript model; `method` is the one that hooks are to run around.
inline ModuleView modules(const torch::jit::Module& model, const std::string& method = "forward") {
  return ModuleView(model::walk_modules(model, method));
}
/// Throws `c10::ValueError` for a model that was frozen, which has no children left.
TORCHTAP_API ModuleView children(const torch::jit::Module& model, const std::string& method = "forward");

/// The same for what a holder (`torch::nn::Sequential`, a `TORCH_MODULE`) holds.
template <class Holder, class = typename Holder::ContainedType>
ModuleView modules(const Holder& model) {
  return modules(*model.ptr());
}
/// The direct children of what a holder holds.
template <class Holder, class = typename Holder::ContainedType>
ModuleView children(const Holder& model) {
  return children(*model.ptr());
}

/// The same for a model that is shared, as `std::make_shared<Net>()` makes it. Throws `c10::ValueError` for a
/// null pointer.
TORCHTAP_API ModuleView modules(const std::shared_ptr<torch::nn::Module>& model);
/// The direct children of a model that is shared.
TORCHTAP_API ModuleView children(const std::shared_ptr<torch::nn::Module>& model);

/// Holds for models that list their modules themselves, as `exported::Model` does.
template <class Model>
using IfListsModules =
    std::enable_if_t<std::is_same_v<decltype(std::declval<const Model&>().modules()), ModuleView>>;

/// The same for these.
template <class Model, class = IfListsModules<Model>, class = void>
ModuleView modules(const Model& model) {
  return model.modules();
}
/// The direct children of these.
template <class Model, class = IfListsModules<Model>, class = void>
ModuleView children(const Model& model) {
  return model.children();
}

}  // namespace torchtap::selectors
