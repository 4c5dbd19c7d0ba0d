#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/selectors/selectors.hpp>

/// Observes the inputs and outputs of the modules of a TorchScript model while it runs.
namespace torchtap::tools {

/// A tensor without its values; `defined` is false for an undefined tensor.
struct Form {
  bool defined = false;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

/// "8x64 float32", or "2 tensors: …".
std::string to_text(const std::vector<Form>& forms);
/// The tensors of a call's arguments.
std::vector<Form> forms_of(const std::vector<c10::IValue>& arguments);

/// Watches every callable module during its lifetime.
class Watch {
 public:
  explicit Watch(const selectors::ModuleView& modules);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  struct Module {
    std::int64_t calls = 0;          ///< calls that returned
    std::vector<Form> outputs;       ///< of the first such call
    std::int64_t other_outputs = 0;  ///< calls that returned tensors of another shape or dtype
  };
  /// By the module's index in walk order.
  Module at(std::int64_t index) const;

  /// The innermost module whose call has not returned, for example because it threw.
  struct Open {
    std::string path;
    std::string type;
    std::vector<Form> inputs;
  };
  std::unique_ptr<Open> innermost() const;

 private:
  struct Seen;
  std::shared_ptr<Seen> seen_;  // shared with hooks, which may outlive this object in a thread of TorchScript
  std::vector<hooks::Handle> handles_;
};

/// Calls `method`. If TorchScript throws, calls it again under a `Watch` to find the failing module, and
/// throws a `c10::ValueError` that begins with that module and its input shapes. Calls `before_retry` first;
/// use it to detach a recorder that must not record twice.
c10::IValue call(
    const torch::jit::Module& model, const std::string& method, const std::vector<c10::IValue>& arguments,
    const std::function<void()>& before_retry = [] {});

}  // namespace torchtap::tools
