#pragma once

/// Defines `FoldOnDevice`, which has devices add up their samples by themselves where they can.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torchtap/core/accumulator.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/recorders/detail/fold.hpp>
#include <torchtap/recorders/detail/late.hpp>

namespace torchtap::recorders::detail {

/// Folds samples of a device, also in CUDA graphs, and leaves those of the CPU to the taker inside.
class FoldOnDevice final : public Fold {
 public:
  /// `late`: where samples wait, or null. `owner` keeps this alive.
  FoldOnDevice(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> inner, std::shared_ptr<Late> late,
               std::weak_ptr<const void> owner);

  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  bool takes_devices() const noexcept override { return true; }
  void fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) override;
  void see_ends_of(const model::ModuleRef& root) override;
  void settle() override;
  std::int64_t forget() override;
  std::int64_t samples() const noexcept override;
  std::int64_t slots_in_update() const noexcept override { return inner_->slots_in_update(); }

  /// From now on no sample waits.
  void be_on_time() noexcept { on_time_.store(true); }
  /// Leaves out a sample that waited; `counted`: as one of an event.
  void lose_late(const char* why, bool counted) noexcept;

 private:
  /// Where samples of one slot on a device are added up before its sink takes them in.
  struct DeviceSlot {
    std::unique_ptr<core::Accumulator> sum;
    std::int64_t added = 0;            // samples that events added since it was last settled
    std::optional<at::Device> device;  // once there was one
  };
  using Chosen = c10::SmallVector<std::size_t, 2>;

  /// Chooses the samples that are added up on their device, and the others.
  bool choose(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, Chosen& taken, Chosen& others);
  void update_apart(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, const Chosen& others);
  void add_up(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, const Chosen& taken, bool captures);
  bool may_be_late(const at::Tensor& sample);
  std::shared_ptr<FoldOnDevice> shared() { return {owner_.lock(), this}; }
  const hooks::Forwards* forwards() const noexcept { return forwards_ ? &*forwards_ : nullptr; }
  void settle_graphs() const noexcept;

  const std::unique_ptr<Fold> inner_;
  const std::shared_ptr<Late> late_;
  const std::weak_ptr<const void> owner_;
  std::vector<DeviceSlot> device_slots_;             // by slot, under the lock; as many as were needed
  std::atomic<bool> captured_{false};                // a graph adds samples
  std::unique_ptr<core::Accumulator::Batch> batch_;  // empty between events
  std::optional<hooks::Forwards> forwards_;          // whose end adds samples that wait
  bool may_wait_ = false;                            // not the first sample
  std::optional<Version> first_;       // of the first sample, where no end of its forward is seen
  std::atomic<bool> on_time_{false};   // a sample was changed in place, so none waits
  std::atomic<std::int64_t> lost_{0};  // samples that were changed while they waited
};

}  // namespace torchtap::recorders::detail
