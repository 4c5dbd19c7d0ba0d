#pragma once

/// Defines `FoldOwn`, which folds samples into a reduction that is code of the program's.

#include <torchtap/recorders/detail/fold_beside.hpp>

namespace torchtap::recorders::detail {

/// While such a reduction runs, it may come back to its own recorder, which then has to answer or to throw.
class FoldOwn final : public FoldBeside {
 public:
  FoldOwn(Slots& slots, Prepare& prepare);
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override {
    return Fold::take(event, tensors, first_slot);
  }
  void fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) override;
  std::int64_t slots_in_update() const noexcept override;

 private:
  const bool beside_;  // threads may have separate sinks
};

}  // namespace torchtap::recorders::detail
