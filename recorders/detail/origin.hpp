#pragma once

/// Defines `Origin`, the module or parameter whose tensors are recorded.

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include <torchtap/model/module_ref.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::model::extend {
class RunsHooks;
}

namespace torchtap::recorders::detail {

/// Does not keep it alive; asked when it gives no samples.
class Origin {
 public:
  /// Of another process.
  Origin() = default;
  /// A module.
  explicit Origin(const model::ModuleRef& module);
  /// A parameter.
  void watch(const at::Tensor& parameter) { parameter_.emplace(parameter.getIntrusivePtr()); }

  /// What is to be said of its samples, whatever they are.
  std::string always() const;
  /// Why there may be no samples although the program ran it; empty if nothing is known. `called`: whether a
  /// call was seen.
  std::string why_none(bool called) const;

 private:
  std::weak_ptr<const torch::nn::Module> module_;
  const model::extend::RunsHooks* point_ = nullptr;  // of it, while it lives
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameter_;
  bool inside_hooks_ = false;  // of a module, that were compiled into the file
  bool by_view_ = false;       // its holder alone is followed
};

}  // namespace torchtap::recorders::detail
