#pragma once

/// Defines `Event`, one call of a module as its hook sees it, and the kinds of hooks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks {

/// When a hook runs.
enum class Kind {
  /// Before `forward`, with its inputs.
  forward_pre,
  /// After `forward`, with its outputs and with its inputs as they are then.
  forward,
  /// After `forward`, with only its outputs. Slightly cheaper, because no input has to be kept.
  forward_output,
  /// When the gradient with respect to an input arrives; counts only gradients that flowed through this
  /// module. The module works on a view of the input, so the gradient of a tensor with three or more uses may
  /// be summed in another order than without the hook, with other rounding. The module can notice the view:
  /// its input is not a leaf, is a view with a `grad_fn`, and is not the caller's tensor by `is_same`; an
  /// input that it returns unchanged is not the caller's tensor, either. Values, shape, strides and memory
  /// are the caller's. Left out for an input of which LibTorch has no view (sparse, nested), or that cannot
  /// be replaced where it lies.
  backward_input,
  /// When the gradient with respect to an output arrives, as for `at::Tensor::register_hook`: includes what
  /// flowed through other outputs that the module computed from it, and all uses of a tensor that it only
  /// passed on. Left out for a leaf of the graph.
  backward_output,
  /// When a backward has the gradient with respect to a parameter, as for `at::Tensor::register_hook`: once a
  /// backward, summed over all uses of the parameter, before it is added to `grad()`. Needs no call of the
  /// module, so every module will do.
  backward_parameter,
};

/// One call of a hooked module, as its hook sees it. Valid only while the hook runs.
class TORCHTAP_API Event {
 public:
  Kind kind() const noexcept { return kind_; }
  /// The module's path below the root that it was attached through; of a parameter its own,
  /// "layer1.weight".
  const std::string& path() const noexcept { return path_; }
  /// The module's pretty type name.
  const std::string& type() const noexcept { return type_; }
  /// The index of this call of the module within one forward of the root, from 0; a gradient has the index of
  /// its call, and a parameter's gradient has 0. Counted per thread. If the root itself cannot be hooked,
  /// "one forward" is one call of the outermost hooked module.
  std::int64_t call_index() const noexcept { return call_index_; }

  /// The inputs, before `forward` (assign to replace what the module gets) or after it. Throws
  /// `c10::ValueError` in other kinds of hooks. A hook that takes a `const Event&` can only read.
  Tensors& inputs() { return changeable(std::as_const(*this).inputs()); }
  /// Access for reading.
  const Tensors& inputs() const {
    if (inputs_ == nullptr) lacks("inputs", "inputs; attach with Kind::forward_pre or Kind::forward");
    return *inputs_;
  }
  /// The outputs; assign to replace what the caller gets. Throws `c10::ValueError` in forward-pre and
  /// gradient hooks.
  Tensors& outputs() { return changeable(std::as_const(*this).outputs()); }
  /// Access for reading.
  const Tensors& outputs() const {
    if (outputs_ == nullptr) lacks("outputs", "outputs; attach with Kind::forward or Kind::forward_output");
    return *outputs_;
  }
  /// The gradient; assign to replace it. Throws `c10::ValueError` in forward hooks.
  at::Tensor& gradient() { return const_cast<at::Tensor&>(std::as_const(*this).gradient()); }
  /// Access for reading.
  const at::Tensor& gradient() const {
    if (gradient_ == nullptr) lacks("gradient", "gradient; attach with one of the backward kinds");
    return *gradient_;
  }
  /// The slot of the input or output that the gradient belongs to: its position among the flattened tensors.
  /// 0 in forward hooks and for parameters.
  std::int64_t slot() const noexcept { return slot_; }

  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

 protected:
  /// For torchtap, which makes one for each call of a hook.
  Event(Kind kind, const std::string& path, const std::string& type, std::int64_t call_index) noexcept
      : kind_(kind), path_(path), type_(type), call_index_(call_index) {}
  ~Event() = default;

  /// For torchtap itself.
  void set_forward(Tensors* inputs, Tensors* outputs) noexcept {
    inputs_ = inputs;
    outputs_ = outputs;
  }
  /// For torchtap itself.
  void set_gradient(at::Tensor* gradient, std::int64_t slot) noexcept {
    gradient_ = gradient;
    slot_ = slot;
  }

 private:
  [[noreturn]] void lacks(const char* member, const char* what) const;
  static Tensors& changeable(const Tensors& tensors) noexcept {
    auto& given = const_cast<Tensors&>(tensors);
    given.note_given();
    return given;
  }

  Kind kind_;
  const std::string& path_;
  const std::string& type_;
  std::int64_t call_index_;
  Tensors* inputs_ = nullptr;
  Tensors* outputs_ = nullptr;
  at::Tensor* gradient_ = nullptr;
  std::int64_t slot_ = 0;
};

namespace detail {

/// The event that torchtap fills in.
class TORCHTAP_API CallEvent final : public Event {
 public:
  CallEvent(Kind kind, const std::string& path, const std::string& type, std::int64_t call_index) noexcept
      : Event(kind, path, type, call_index) {}
  using Event::set_forward;
  using Event::set_gradient;
};

}  // namespace detail
}  // namespace torchtap::hooks
