// Folds samples into a reduction of the program's, and says that this thread does so.
#include <torchtap/recorders/detail/fold_own.hpp>

namespace torchtap::recorders::detail {

FoldOwn::FoldOwn(Slots& slots, Prepare& prepare)
    : FoldBeside(slots, prepare),
      // A transform may be called by one thread at a time.
      beside_(slots.options->reduction()->commutative() && slots.options->transform() == nullptr) {}

void FoldOwn::fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  if (!beside_) {
    const Slots::Lock lock(slots_);
    return fold_in_turn(samples, first_slot);
  }
  ThreadSinks* const others = this->others();
  if (others == nullptr) {
    if (const Slots::Lock lock(slots_, std::try_to_lock); lock) return fold_in_turn(samples, first_slot);
  }
  {
    const OwnCode own(slots_, OwnCode::What::beside);
    if (fold_into(others, samples, first_slot)) return;
  }
  const Slots::Lock lock(slots_);
  open(samples, first_slot);
}

std::int64_t FoldOwn::slots_in_update() const noexcept {
  return OwnCode::runs(slots_, OwnCode::What::beside) ? others()->slots_here() : -1;
}

}  // namespace torchtap::recorders::detail
