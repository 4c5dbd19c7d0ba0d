// Notes the gates that each thread's calls are in, without a lock.
#include <torchtap/hooks/detail/readers.hpp>

namespace torchtap::hooks::detail {

std::atomic<Readers::Notes*> Readers::all_{nullptr};

Readers::Readers() {
  for (notes_ = all_.load(); notes_ != nullptr; notes_ = notes_->next) {
    bool taken = false;
    if (notes_->taken.compare_exchange_strong(taken, true)) return;
  }
  notes_ = new Notes;
  notes_->next = all_.load();
  while (!all_.compare_exchange_weak(notes_->next, notes_)) {
  }
}

Readers::~Readers() {
  notes_->taken.store(false);
}

bool Readers::any_in(const Gate& gate) noexcept {
  if (gate.readers.load() != 0) return true;
  for (const Notes* notes = all_.load(); notes != nullptr; notes = notes->next) {
    for (const auto& entered : notes->gates) {
      if (entered.load() == &gate) return true;
    }
  }
  return false;
}

}  // namespace torchtap::hooks::detail
