#pragma once

/// Lists the modules of a model in pre-order, and finds a module by its path.

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/extend/module_in.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torch::nn {
class AnyModule;
}

namespace torchtap::model {

/// The model's modules in pre-order, starting with the root at path "". A shared module is listed once, at
/// its first path, with its other paths as aliases. Indices count every module, including those without a
/// forward.
///
/// Unlike `torch::nn::Module::modules()`, this also works on models that no `std::shared_ptr` owns.
TORCHTAP_API std::vector<ModuleRef> walk_modules(torch::nn::Module& root);

/// The direct children in order of registration, counted from 0; a module registered twice is listed once.
TORCHTAP_API std::vector<ModuleRef> walk_children(torch::nn::Module& root);

/// Walks a TorchScript model. Hooks run around `method`; "forward" includes `forward1`, `forward2`…, which
/// tracing makes for a module that is called several times. A frozen model is a root without submodules,
/// because its file has no others.
///
/// Throws `c10::ValueError` if `method` is empty or names a copy such as "forward1".
TORCHTAP_API std::vector<ModuleRef> walk_modules(const torch::jit::Module& root,
                                                 const std::string& method = "forward");
/// The direct children of a TorchScript model.
TORCHTAP_API std::vector<ModuleRef> walk_children(const torch::jit::Module& root,
                                                  const std::string& method = "forward");

/// The module at `path` (or alias) below `root`; "" is the root itself. Throws `c10::IndexError`, which lists
/// the nearest paths.
TORCHTAP_API ModuleRef find(torch::nn::Module& root, const std::string& path);
/// Finds a module of a TorchScript model, walked for `method`.
TORCHTAP_API ModuleRef find(const torch::jit::Module& root, const std::string& path,
                            const std::string& method = "forward");
/// Finds a module of the model in a holder or behind a `std::shared_ptr`. Throws `c10::ValueError` if it is
/// empty.
template <class Model, class = std::enable_if_t<extend::holds_module_v<Model>>>
ModuleRef find(const Model& root, const std::string& path) {
  return find(static_cast<torch::nn::Module&>(extend::module_in(root)), path);
}
/// Finds a module of a model that lists its modules itself, as `exported::Model` does.
template <class Model, class = std::enable_if_t<extend::lists_modules_v<const Model>>, class = void>
ModuleRef find(const Model& root, const std::string& path) {
  return extend::find_in(root.modules().vector(), path);
}
/// 0 is no path.
template <class Model, class... Method>
ModuleRef find(Model&& root, std::nullptr_t path, const Method&... method) = delete;
/// Anything else: an error of the compiler that says what is wanted.
template <class Model, class = std::enable_if_t<!extend::is_model_v<std::remove_reference_t<Model>>>>
ModuleRef find(Model&&, const std::string&) {
  static_assert(extend::is_model_v<std::remove_reference_t<Model>>,
                "find needs a model: a torch::nn::Module&, its holder or std::shared_ptr (of another pointer "
                "what it points to, and not const), or a torch::jit::Module");
  extend::refuse_null_model();
}

/// The module inside `any`, under the given path. Throws `c10::ValueError` if `any` is empty.
TORCHTAP_API ModuleRef ref(torch::nn::AnyModule& any, const std::string& path = "");

}  // namespace torchtap::model
