#pragma once

/// Notes the gates that each thread's calls are in, so that no plan is freed while a call reads it.

#include <array>
#include <atomic>
#include <cstddef>

#include <torchtap/hooks/detail/hook_point.hpp>

namespace torchtap::hooks::detail {

/// The gates that the calls of one thread are in. Threads that call the same module write to different
/// memory.
///
/// A thread notes a gate and then loads its plan; a thread that replaces a plan stores the new one and then
/// reads the notes. Both are sequentially consistent, so either the note is seen or the thread gets the new
/// plan.
class Readers {
 public:
  Readers();
  ~Readers();
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  void enter(Gate& gate) noexcept;
  void leave(Gate& gate) noexcept;
  /// Whether a call of any thread is in the gate.
  static bool any_in(const Gate& gate) noexcept;

 private:
  struct alignas(128) Notes {
    std::array<std::atomic<const Gate*>, 13> gates{};
    std::size_t depth = 0;  // no note above it; written by the thread alone
    std::atomic<bool> taken{true};
    Notes* next = nullptr;
  };
  // Never freed: another thread takes them over when this one ends.
  static std::atomic<Notes*> all_;

  Notes* notes_;
};

inline void Readers::enter(Gate& gate) noexcept {
  if (notes_->depth != notes_->gates.size()) {
    notes_->gates[notes_->depth++].store(&gate);
  } else {
    gate.readers.fetch_add(1);  // of calls that are too deep for a note
  }
}

inline void Readers::leave(Gate& gate) noexcept {
  std::size_t place = notes_->depth;
  while (place != 0 && notes_->gates[place - 1].load(std::memory_order_relaxed) != &gate) --place;
  if (place == 0) {
    gate.readers.fetch_sub(1);
    return;
  }
  // Almost always the last. A note stays where it is: a thread that reads the notes meanwhile could miss it
  // if it moved.
  notes_->gates[place - 1].store(nullptr);
  while (notes_->depth != 0 && notes_->gates[notes_->depth - 1].load(std::memory_order_relaxed) == nullptr) {
    --notes_->depth;
  }
}

}  // namespace torchtap::hooks::detail
