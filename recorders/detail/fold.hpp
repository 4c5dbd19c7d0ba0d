#pragma once

/// Defines `Fold`, which folds samples into reductions, one after another.

#include <c10/util/SmallVector.h>

#include <torchtap/base/api.hpp>
#include <torchtap/recorders/detail/taker.hpp>

namespace torchtap::recorders::detail {

/// Folds samples in the order in which they come: threads wait for one another.
class TORCHTAP_API Fold : public Taker {
 public:
  Fold(Slots& slots, Prepare& prepare) : Taker(slots), prepare_(prepare) {}
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  bool takes_devices() const noexcept override { return false; }
  /// Folds tensors that are as the options say, those of one event, all of them or none.
  virtual void fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);

 protected:
  /// Calls `function` with the tensors as the options say.
  template <class Function>
  Took prepared(c10::ArrayRef<at::Tensor> tensors, const Function& function) {
    if (prepare_.as_it_is()) {
      function(tensors);
    } else {
      const Prepare::Turn turn(prepare_);
      c10::SmallVector<at::Tensor, 2> ready;
      for (const at::Tensor& tensor : tensors) ready.push_back(prepare_(tensor));
      function(ready);
    }
    return Took::sample;
  }
  /// Called under the lock. Updates the reductions of the slots.
  void update(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
    if (samples.size() != 1 || first_slot >= slots_.list.size() ||
        slots_.list[first_slot].fixed.has_value()) {
      update_several(samples, first_slot);
    } else if (samples[0].defined()) {
      slots_.list[first_slot].sink->update(samples[0]);
    }
  }

 private:
  void update_several(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);

  Prepare& prepare_;
};

}  // namespace torchtap::recorders::detail
