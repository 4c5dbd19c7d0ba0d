// Folds samples under the lock.
#include <torchtap/recorders/detail/fold.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {

Taker::Took Fold::take(const hooks::Event& /*event*/, c10::ArrayRef<at::Tensor> tensors,
                       std::size_t first_slot) {
  return prepared(tensors, [&](c10::ArrayRef<at::Tensor> samples) { fold(samples, first_slot); });
}

void Fold::fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  const std::lock_guard lock(slots_.mutex);
  update(samples, first_slot);
  slots_.count_one();
}

void Fold::update_several(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  Slots::Added added(slots_.list);
  for (std::size_t i = 0; i < samples.size(); ++i) (void)slots_.to_fold(first_slot + i);
  c10::SmallVector<Update, 2> updates;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].defined()) updates.push_back({&slots_.list[first_slot + i].sink, &samples[i]});
  }
  update_together(updates);
  added.kept = true;
}

}  // namespace torchtap::recorders::detail
