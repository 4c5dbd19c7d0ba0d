#pragma once

/// Defines the hooks that torchtap puts on autograd's nodes to report the gradients of a module's tensors.

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/hooks/detail/hook.hpp>

namespace torchtap::hooks::detail {

using torch::autograd::Node;

/// The hooks to call when one gradient arrives. Weak, so that the graph does not keep removed hooks alive.
struct GradientHooks {
  struct One {
    std::weak_ptr<Hook> hook;
    std::int64_t call_index;
  };
  std::vector<One> hooks;
  std::int64_t slot = 0;
  std::shared_ptr<const core::Context::Names> names = core::Context::here();  // of the forward

  void fire(at::Tensor& gradient) const {
    const core::Context of_forward(names);
    for (const auto& one : hooks) {
      const auto hook = one.hook.lock();
      if (hook == nullptr || !hook->active.load()) continue;
      CallEvent event(hook->kind, hook->path, hook->type, one.call_index);
      event.set_gradient(&gradient, slot);
      hook->callback(event);
      check_given(*hook, gradient);
    }
  }
};

/// Set once a gradient was reported at its own node, so that the base's node does not report it again.
using Reported = std::shared_ptr<std::atomic<bool>>;

/// Calls `function` such that scopes of operations/ do not see its operations.
template <class Function>
decltype(auto) unseen(Function&& function) {
  const c10::impl::ExcludeDispatchKeyGuard guard(base::operations_key);
  return function();
}

/// The gradient of an input that a module used before it changed it in place: what comes through those uses,
/// and what comes through the change. Both go on to the node that made the tensor, which runs after them.
class Halves {
 public:
  enum Half { before, changed };

  void put(Half half, const at::Tensor& gradient) {
    const std::lock_guard lock(mutex_);
    if (halves_[half].defined()) halves_ = {};  // of a backward that did not get to the end
    // A copy: LibTorch adds to gradients in place if nobody else has them.
    halves_[half] = unseen([&] { return gradient.clone(); });
  }
  /// Their sum, which is forgotten; undefined if nothing came.
  at::Tensor take() {
    const std::lock_guard lock(mutex_);
    const auto halves = std::exchange(halves_, {});
    if (!halves[before].defined() || !halves[changed].defined()) {
      return halves[before].defined() ? halves[before] : halves[changed];
    }
    return unseen([&] { return halves[before] + halves[changed]; });
  }

 private:
  std::mutex mutex_;
  std::array<at::Tensor, 2> halves_;
};

/// The hooks of modules' tensors, among other hooks of a node.
struct OfModule : torch::autograd::FunctionPreHook {};

/// Attached to the node that made a tensor. Unlike Tensor::register_hook it stays with this version of the
/// tensor when the tensor is later changed in place.
class NodeHook final : public OfModule {
 public:
  NodeHook(GradientHooks hooks, std::uint32_t output, Reported reported = nullptr)
      : hooks_(std::move(hooks)), output_(output), reported_(std::move(reported)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list result = gradients;
    if (output_ >= result.size() || !result[output_].defined()) return result;
    if (reported_ != nullptr) reported_->store(true);
    if (whole_ != nullptr) {
      whole_->put(half_, result[output_]);
    } else {
      hooks_.fire(result[output_]);
    }
    return result;
  }
  /// From now on what arrives is a half of `whole`.
  void be_half_of(std::shared_ptr<Halves> whole, Halves::Half half) {
    whole_ = std::move(whole);
    half_ = half;
  }

 private:
  GradientHooks hooks_;
  std::uint32_t output_;
  Reported reported_;
  std::shared_ptr<Halves> whole_;
  Halves::Half half_ = Halves::before;
};
/// The position of a view in its base, to find the view's part of the base's gradient.
class Part {
 public:
  Part(const at::Tensor& view, const at::Tensor& base)
      : sizes_(view.sizes().vec()),
        strides_(view.strides().vec()),
        base_sizes_(base.sizes().vec()),
        base_strides_(base.strides().vec()),
        offset_(view.storage_offset() - base.storage_offset()),
        whole_(offset_ == 0 && sizes_ == base_sizes_ && strides_ == base_strides_) {}

  /// Whether geometry alone describes the view: same dtype, conjugate bit and negative bit as the base.
  static bool describes(const at::Tensor& view, const at::Tensor& base) {
    return view.layout() == c10::kStrided && view.scalar_type() == base.scalar_type() &&
           view.is_conj() == base.is_conj() && view.is_neg() == base.is_neg();
  }

  /// The view's part of the base's gradient.
  at::Tensor of(const at::Tensor& gradient) const {
    if (whole_) return gradient;
    return unseen([&] {
      const bool fits = gradient.strides() == at::IntArrayRef(base_strides_);
      const at::Tensor all = fits ? gradient : laid_out_as_base(gradient);
      return all.as_strided(sizes_, strides_, all.storage_offset() + offset_);
    });
  }
  /// The base's gradient with another part.
  at::Tensor with(const at::Tensor& gradient, const at::Tensor& part) const {
    if (whole_) return part;
    return unseen([&] {
      at::Tensor all = laid_out_as_base(gradient);
      all.as_strided(sizes_, strides_, offset_).copy_(part);
      return all;
    });
  }
  void fire(const GradientHooks& hooks, at::Tensor& gradient) const {
    at::Tensor part = of(gradient);
    const at::Tensor before = part;
    hooks.fire(part);
    if (!part.is_same(before)) gradient = with(gradient, part);
  }

 private:
  at::Tensor laid_out_as_base(const at::Tensor& gradient) const {
    return at::empty_strided(base_sizes_, base_strides_, gradient.options()).copy_(gradient);
  }

  std::vector<std::int64_t> sizes_, strides_, base_sizes_, base_strides_;
  std::int64_t offset_;
  bool whole_;
};

/// Attached to the node that made the base of a view. Autograd records an in-place change of a view on its
/// base and recreates the view, so nothing flows through the node of the view's previous version. The
/// gradient that arrives here is then that version's, provided that nothing else leads here (see lone_base).
class BaseHook final : public OfModule {
 public:
  BaseHook(GradientHooks hooks, const at::Tensor& view, const at::Tensor& base, Reported reported)
      : hooks_(std::move(hooks)),
        part_(view, base),
        output_(static_cast<std::uint32_t>(base.output_nr())),
        reported_(std::move(reported)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list result = gradients;
    if (reported_->exchange(false)) return result;
    if (output_ < result.size() && result[output_].defined()) part_.fire(hooks_, result[output_]);
    return result;
  }

 private:
  GradientHooks hooks_;
  Part part_;
  std::uint32_t output_;
  Reported reported_;
};

/// Attached to the node that records an in-place change of a view: its output towards the base is the
/// gradient with respect to the tensor before the change.
class InplaceHook final : public torch::autograd::FunctionPostHook {
 public:
  InplaceHook(GradientHooks hooks, Part part, std::shared_ptr<Halves> whole)
      : hooks_(std::move(hooks)), part_(std::move(part)), whole_(std::move(whole)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    torch::autograd::variable_list result = outputs;
    if (result.empty() || !result[0].defined()) return result;
    if (whole_ != nullptr) {
      whole_->put(Halves::changed, part_.of(result[0]));
    } else {
      part_.fire(hooks_, result[0]);
    }
    return result;
  }

 private:
  GradientHooks hooks_;
  Part part_;
  std::shared_ptr<Halves> whole_;  // null if the module did not use the input before
};

/// Attached to the node to which both halves go.
class WholeHook final : public OfModule {
 public:
  WholeHook(GradientHooks hooks, Part part, std::uint32_t output, std::shared_ptr<Halves> whole)
      : hooks_(std::move(hooks)), part_(std::move(part)), output_(output), whole_(std::move(whole)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list result = gradients;
    const at::Tensor whole = whole_->take();
    if (!whole.defined() || output_ >= result.size() || !result[output_].defined()) return result;
    at::Tensor given = whole;
    hooks_.fire(given);
    if (given.is_same(whole)) return result;
    at::Tensor& all = result[output_];
    all = part_.with(all, unseen([&] { return part_.of(all) + (given - whole); }));
    return result;
  }

 private:
  GradientHooks hooks_;
  Part part_;
  std::uint32_t output_;
  std::shared_ptr<Halves> whole_;
};

/// Adds a hook to a node.
void add_pre_hook(Node& node, std::unique_ptr<torch::autograd::FunctionPreHook> hook);
/// Adds the hook before those of outputs and inputs that are there: the tensor went through their modules
/// first, so its gradient comes to this one first.
void add_pre_hook_first(Node& node, std::unique_ptr<torch::autograd::FunctionPreHook> hook);

/// The tensor that a view is of; the tensor itself if it is none.
at::Tensor base_of(const at::Tensor& tensor);
/// The base of a view if only the view uses it: nothing else holds the tensor, and only the views between
/// them lead to its node. All gradients of the base then flow through the view. Otherwise undefined.
at::Tensor lone_base(const at::Tensor& view);

}  // namespace torchtap::hooks::detail
