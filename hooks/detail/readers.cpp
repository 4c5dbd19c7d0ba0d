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

void Readers::enter(Gate& gate) noexcept {
  if (notes_->depth != notes_->gates.size()) {
    notes_->gates[notes_->depth++].store(&gate);
  } else {
    gate.readers.fetch_add(1);  // of calls that are too deep for a note
  }
}

void Readers::leave(Gate& gate) noexcept {
  std::size_t place = notes_->depth;
  while (place != 0 && notes_->gates[place - 1].load(std::memory_order_relaxed) != &gate) --place;
  if (place == 0) {
    gate.readers.fetch_sub(1);
    return;
  }
  // Almost always the last. A note stays where it is: who reads the notes meanwhile could miss one that
  // moves.
  notes_->gates[place - 1].store(nullptr);
  while (notes_->depth != 0 && notes_->gates[notes_->depth - 1].load(std::memory_order_relaxed) == nullptr) {
    --notes_->depth;
  }
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
