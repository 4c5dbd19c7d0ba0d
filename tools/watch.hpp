#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <vector>

/// What goes into and comes out of the modules of a TorchScript model while it runs.
namespace torchtap::tools {

/// A tensor without its values; `defined` is false where there was none.
struct Form {
  bool defined = false;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

/// "8x64 float32", or "2 tensors: …".
std::string to_text(const std::vector<Form>& forms);
/// The tensors of a call's arguments.
std::vector<Form> forms_of(const std::vector<c10::IValue>& arguments);

/// Watches every module that can be called, as long as it lives.
class Watch {
 public:
  explicit Watch(const selectors::ModuleView& modules);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  struct Module {
    std::int64_t calls = 0;          ///< that returned
    std::vector<Form> outputs;       ///< of the first of them
    std::int64_t other_outputs = 0;  ///< calls that returned tensors of another shape or dtype
  };
  /// By the module's index in the walk.
  Module at(std::int64_t index) const;

  /// The innermost module that was called and has not returned, such as one that threw.
  struct Open {
    std::string path;
    std::string type;
    std::vector<Form> inputs;
  };
  std::unique_ptr<Open> innermost() const;

 private:
  struct Seen;
  std::shared_ptr<Seen> seen_;  // hooks may outlive this in a thread of TorchScript's
  std::vector<hooks::Handle> handles_;
};

/// Calls `method`. If TorchScript throws, finds the module that did by calling again while it is watched, and
/// throws a `c10::ValueError` that begins with it and the shapes it was given; `before_retry` is called
/// first, for whoever records and wants nothing twice.
c10::IValue call(
    const torch::jit::Module& model, const std::string& method, const std::vector<c10::IValue>& arguments,
    const std::function<void()>& before_retry = [] {});

}  // namespace torchtap::tools
