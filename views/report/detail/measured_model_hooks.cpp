// Attaching and letting go.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include <torchtap/views/report/detail/calibrate.hpp>
#include <torchtap/views/report/detail/measured_model.hpp>

namespace torchtap::views::report::detail {
namespace {

/// Says whose gradient comes, right before it is accumulated: the record function does not.
class OwnerHook final : public torch::autograd::FunctionPreHook {
 public:
  OwnerHook(std::weak_ptr<MeasuredModel> measured, std::int64_t module)
      : measured_(std::move(measured)), module_(module) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (const auto measured = measured_.lock()) measured->parameter_comes(module_);
    return gradients;
  }

 private:
  std::weak_ptr<MeasuredModel> measured_;
  std::int64_t module_;
};

}  // namespace

struct Attached::Watched {
  watch::NodePtr node;
  torch::autograd::FunctionPreHook* hook;
};

Attached::Attached(std::shared_ptr<MeasuredModel> of) : measured(std::move(of)) {
  try {
    attach();
  } catch (...) {
    release();
    throw;
  }
}

Attached::~Attached() {
  release();
}

void Attached::attach() {
  MeasuredModel& s = *measured;
  if (s.scripted) {
    if (s.script_handles.empty()) {
      s.script_handles = s.attach_all();
      const std::lock_guard lock(s.mutex_);
      s.let_go_of_modules();  // they do not live longer because they are measured
    }
  } else {
    handles_ = s.attach_all();
  }
  if (!s.options.clock()) s.ledger_.calibration = calibration(s.scripted);
  if (const auto& cost = s.options.call_cost()) {
    s.ledger_.calibration.inside = cost->inside;
    s.ledger_.calibration.around = cost->around;
  }
  watch_parameters();
  if (s.options.memory()) {
    bool other_devices = false;
    for (const TreeNode& node : s.ledger_.tree) {
      other_devices = other_devices || std::any_of(node.held.begin(), node.held.end(), [](const Held& held) {
                        return !held.tensor.device().is_cpu();
                      });
    }
    heap_ = HeapWatch::begin(other_devices);
    s.heap_taken = heap_ == nullptr;
    s.heap_displaced = heap_ != nullptr && heap_->displaced();
  }
  s.ledger_.watches_heap = heap_ != nullptr;
  nodes_.emplace(measured);
  if (s.options.work() || s.options.non_finite() != OnNonFinite::ignore) {
    scope_.emplace([held = measured](operations::Event& event) { held->run(event); });
  }
  s.attached = true;
  s.begin();
}

void Attached::release() noexcept {
  measured->end();
  measured->attached = false;
  scope_.reset();
  nodes_.reset();
  heap_.reset();
  unwatch_parameters();
  hooks::DeferredCompile batch;
  handles_.clear();
}

void Attached::watch_parameters() {
  for (std::size_t i = 0; i < measured->ledger_.tree.size(); ++i) {
    for (const Held& held : measured->ledger_.tree[i].held) {
      if (held.buffer || !held.first || !held.tensor.requires_grad() || !held.tensor.is_leaf()) continue;
      auto hook = std::make_unique<OwnerHook>(measured, static_cast<std::int64_t>(i));
      Watched watched{torch::autograd::impl::grad_accumulator(held.tensor), hook.get()};
      if (watched.node == nullptr) continue;
      watched.node->add_pre_hook(std::move(hook));
      watched_.push_back(std::move(watched));
    }
  }
}

void Attached::unwatch_parameters() noexcept {
  for (const Watched& watched : watched_) {
    auto& hooks = watched.node->pre_hooks();
    hooks.erase(std::remove_if(hooks.begin(), hooks.end(),
                               [&](const auto& one) { return one.get() == watched.hook; }),
                hooks.end());
  }
  watched_.clear();
}

}  // namespace torchtap::views::report::detail
