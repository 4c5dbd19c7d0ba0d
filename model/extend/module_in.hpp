#pragma once

/// Finds the module in what programs pass for one: a holder, or a `std::shared_ptr`.

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::model::extend {

/// Whether a `T` is a holder (`torch::nn::Linear`, a `TORCH_MODULE`) or shares a module.
template <class T, class = void>
inline constexpr bool holds_module_v = false;
template <class Holder>
inline constexpr bool holds_module_v<Holder, std::void_t<typename Holder::ContainedType>> = true;
template <class Module>
inline constexpr bool holds_module_v<std::shared_ptr<Module>, void> =
    std::is_base_of_v<torch::nn::Module, Module> && !std::is_const_v<Module>;

/// Whether a `T` is a model that lists its modules itself, as `exported::Model` does.
template <class T, class = void>
inline constexpr bool lists_modules_v = false;
template <class T>
inline constexpr bool lists_modules_v<T, std::void_t<decltype(std::declval<T&>().modules().vector())>> = true;

/// Whether a `T` is a model that can be searched: a module, a TorchScript module, one that holds a module, or
/// one that lists its modules.
template <class T>
inline constexpr bool is_model_v =
    std::is_convertible_v<T&, torch::nn::Module&> || std::is_convertible_v<T&, const torch::jit::Module&> ||
    holds_module_v<std::remove_cv_t<T>> || lists_modules_v<T>;

[[noreturn]] TORCHTAP_API void refuse_empty_holder();
[[noreturn]] TORCHTAP_API void refuse_null_model();

/// The module at `path` (or alias) among these, as `model::find` finds it.
TORCHTAP_API ModuleRef find_in(const std::vector<ModuleRef>& modules, const std::string& path);

/// The module. Throws `c10::ValueError` if there is none.
template <class Holder>
typename Holder::ContainedType& module_in(const Holder& holder) {
  if (holder.is_empty()) refuse_empty_holder();
  return *holder.ptr();
}
template <class Module>
Module& module_in(const std::shared_ptr<Module>& module) {
  if (module == nullptr) refuse_null_model();
  return *module;
}

}  // namespace torchtap::model::extend
