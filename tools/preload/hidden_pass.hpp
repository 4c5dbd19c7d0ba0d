#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <torchtap/hooks/event.hpp>
#include <torchtap/operations/event.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::tools::preload {

/// A forward pass of a model whose own forward cannot be seen: guesses from the calls of its modules, and
/// from the operations between them, where the next pass begins. Operations may come from several threads.
class Pass {
 public:
  using Modules = std::unordered_set<const torch::nn::Module*>;

  /// Begins a pass. The calls of `visible` modules can be seen.
  void begin(Modules visible);
  /// A module is called.
  void called(const torch::nn::Module& module);
  /// Whether the call of the pass's first module, or method, with these inputs begins the next pass: it was
  /// called before, no input was computed in this pass, and all visible modules were called since. Modules
  /// that never run are noticed after a few calls. Call it for every call of the first module, before its
  /// body.
  bool begins_again(const std::vector<at::Tensor>& inputs);
  /// Whether modules that can be seen were not called yet.
  bool expects_others() const noexcept { return !visible_.empty(); }
  /// Runs an operation, and follows what is computed from the pass's inputs.
  void follow(operations::Event& event);
  /// A tensor was computed in the pass, or is its input.
  void add(const at::Tensor& tensor);
  /// The modules that were called in it.
  const Modules& called_modules() const noexcept { return called_; }
  std::int64_t operations() const noexcept { return operations_; }
  void forget();

 private:
  bool reads_computed(const operations::Event& event);
  bool computed(const at::Tensor& tensor) const;

  Modules visible_, called_;
  bool begun_ = false;                  // the first module was called
  std::size_t called_before_ = 0;       // modules called when the first was called last
  std::int64_t calls_without_new_ = 0;  // of the first, since a module was called for the first time
  std::atomic<std::int64_t> operations_{0};
  mutable std::mutex mutex_;
  /// The memory of its inputs, and of tensors computed from them.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> computed_;
};

/// The defined tensors that a call was given.
std::vector<at::Tensor> inputs_of(const hooks::Event& call);

}  // namespace torchtap::tools::preload
