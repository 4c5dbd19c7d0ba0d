#pragma once

/// Defines `Record`, which asks at each event whether and what a subrecorder records of it.

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/detail/changeable.hpp>
#include <torchtap/recorders/detail/until_recorded.hpp>

namespace torchtap::recorders::detail {

/// A subrecorder, shared with its hooks, so that either may be destroyed first. Thread-safe.
///
///     event → Record: of its slot? a condition? which tensors? → Taker: keeps, folds, sends → Slots
///     Recorder::save, tensor(), … → Recorded: settles the taker, copies the slots under the lock
class TORCHTAP_API Record : public Changeable, public std::enable_shared_from_this<Record> {
 public:
  /// Of no module in this process. `alone`: one call attached only to this one.
  Record(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id, bool alone);
  /// Says which module it is of.
  void watch(const model::ModuleRef& module) { origin_ = Origin(module); }
  /// Says which parameter it is of.
  void watch(const at::Tensor& parameter) { origin_.watch(parameter); }
  /// Call it once, before the first event.
  void store_in(std::shared_ptr<Store> store) { choose_taker(std::move(store)); }
  /// Attaches to a module what else the options need, and returns the function of its hook.
  hooks::Callback hook(const model::ModuleRef& module, std::vector<hooks::Handle>& companions);

  /// Called by the hook.
  void on_event(hooks::Event& event) {
    guarded([&] { record(event); });
  }
  /// Called by the hook for a gradient that cannot be reported.
  void on_left_out(const hooks::Event& event, const std::string& why);
  /// For a recorder of gradients, called during the forward. Throws if the tensors whose gradients are
  /// recorded are in a value of an unknown type, because no gradient would arrive.
  void on_forward(const hooks::Tensors& tensors);

  /// Calls `function`, and tells `on_error` of what it throws.
  template <class Function>
  void guarded(const Function& function) {
    if (options().on_error() == nullptr) return function();
    try {
      function();
    } catch (const StopForward&) {
      throw;
    } catch (...) {
      slots_.report();
    }
  }
  /// Whether the event is of a slot that is recorded: gradients arrive one by one.
  bool is_of_slot(const hooks::Event& event) const noexcept {
    return !traits(kind()).gradients || options().all_tensors() || event.slot() == options().slot();
  }
  /// The tensors of an event that are to be recorded.
  struct Asked {
    const hooks::Tensors* all = nullptr;  // those of the call; null for a gradient
    const at::Tensor* first = nullptr;
  };
  /// Asks the condition. False if nothing is to be recorded, which it counts.
  bool asks(const hooks::Event& event, Asked& asked);

 private:
  void record(hooks::Event& event);
  bool ask(const hooks::Event& event, Asked& asked);
  Taker::Took hand_over(const hooks::Event& event, const Asked& asked);
  template <class Condition>
  bool agrees(const Condition& condition) const;
  bool wants(const hooks::Event& event, const Asked& asked) const;
  /// Throws unless the call holds the tensors to be recorded, also if a value of an unknown type may hold
  /// them.
  void check(const hooks::Tensors& tensors) const {
    const bool enough = options().all_tensors() ? !tensors.empty() || traits(kind()).gradients
                                                : options().slot() < tensors.size();
    if (!enough || (tensors.has_unknown() && options().all_tensors())) say_what_lacks(tensors);
  }
  [[noreturn]] void say_what_lacks(const hooks::Tensors& tensors) const;
  /// While a graph is captured: throws unless its replays can record by themselves.
  void check_capture(const at::Tensor& sample) const {
    if (sample.defined() && !sample.is_cpu()) check_capture_of_device(sample);
  }
  void check_capture_of_device(const at::Tensor& sample) const;

  const bool alone_;
};

}  // namespace torchtap::recorders::detail
