#pragma once

/// Names the inputs and outputs of modules that reductions get beside a sample (`RecorderOptions::with`).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/selectors/walk.hpp>

namespace torchtap::recorders {

/// A companion that a module gives, for `RecorderOptions::with`: made by `output` and `input`.
///
/// A path is relative to the recorded module, as a file's to a folder: "." is the module itself, "./router"
/// or "router" one below, "../norm" one beside it, "/norm" one of the root, "/" the root.
class TORCHTAP_API Companion {
 public:
  /// Made by `output` and `input`. Paths are among `modules`, or in the recorded module's model if there are
  /// none.
  Companion(bool of_output, std::string path, std::int64_t slot, std::vector<model::ModuleRef> modules = {});

  /// This companion, mapped by `function`: a pooling, an argmax.
  Companion map(std::function<at::Tensor(const at::Tensor&)> function) const;

  /// Whether it is an output of the module, not an input.
  bool of_output() const noexcept { return of_output_; }
  /// Its number among the flattened outputs or inputs.
  std::int64_t slot() const noexcept { return slot_; }
  /// Whether it names modules itself.
  bool has_modules() const noexcept { return !modules_.empty(); }
  /// The use of the tensor.
  at::Tensor mapped(const at::Tensor& tensor) const { return map_ == nullptr ? tensor : map_(tensor); }
  /// The module for the recorded one. `modules` belong to its root. Throws `c10::ValueError` if there is none
  /// at the path, which lists the nearest.
  model::ModuleRef of(const model::ModuleRef& recorded, const std::vector<model::ModuleRef>& modules) const;
  /// `output("./router", 1)`.
  std::string describe() const;

 private:
  bool of_output_;
  std::string path_;
  std::int64_t slot_;
  std::vector<model::ModuleRef> modules_;
  std::function<at::Tensor(const at::Tensor&)> map_;
};

/// The output of a module, by its path relative to the recorded one; `slot` is its number among the flattened
/// outputs.
TORCHTAP_API Companion output(std::string path = ".", std::int64_t slot = 0);
/// The input of a module, as it was before its forward.
TORCHTAP_API Companion input(std::string path = ".", std::int64_t slot = 0);
/// The output of a module of another model: "." is the one at the recorded module's path. Both forwards have
/// to run inside of one `core::Context`, see `core::Context::together`.
/// `model` may also be modules of a walk, even of the recorded model itself.
TORCHTAP_API Companion output(const selectors::ModuleView& model, std::string path = ".",
                              std::int64_t slot = 0);

}  // namespace torchtap::recorders
