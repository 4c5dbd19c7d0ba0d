#pragma once

/// Defines `FoldOnDevice`, which has devices add up their samples by themselves where they can.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torchtap/cuda/detail/late.hpp>
#include <torchtap/cuda/detail/pages.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/recorders/extend/on_devices.hpp>

namespace torchtap::cuda::detail {

using recorders::extend::Fold;
using recorders::extend::Prepare;
using recorders::extend::Slots;

/// Folds samples of a device, also in CUDA graphs, and leaves those of the CPU to the taker inside.
class FoldOnDevice final : public Fold {
 public:
  /// `late`: where samples wait, or null. The others as in `OnDevices::around`.
  FoldOnDevice(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> inner, std::shared_ptr<Late> late,
               std::weak_ptr<const void> owner, const std::shared_ptr<const hooks::Forwards>& forwards);

  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  bool takes_devices() const noexcept override { return true; }
  void fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) override;
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
    std::unique_ptr<Pages> sum;
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
  void settle_graphs() const noexcept;

  const std::unique_ptr<Fold> inner_;
  const std::shared_ptr<Late> late_;
  const std::weak_ptr<const void> owner_;
  const std::shared_ptr<const hooks::Forwards>& forwards_;  // whose end adds samples that wait; may be null
  std::vector<DeviceSlot> device_slots_;                    // by slot, under the lock; as many as were needed
  std::atomic<bool> captured_{false};                       // a graph adds samples
  Pages::Batch batch_;                                      // empty between events
  bool may_wait_ = false;                                   // not the first sample
  std::optional<Version> first_;       // of the first sample, where no end of its forward is seen
  std::atomic<bool> on_time_{false};   // a sample was changed in place, so none waits
  std::atomic<std::int64_t> lost_{0};  // samples that were changed while they waited
};

/// Has devices add up the samples of a recorder of these options. For `recorders::extend::install`.
std::shared_ptr<recorders::extend::OnDevices> on_devices(const recorders::RecorderOptions& options);

}  // namespace torchtap::cuda::detail
