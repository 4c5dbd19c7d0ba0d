#pragma once

/// Defines `FoldBeside`, which folds samples of several threads at the same time.

#include <atomic>
#include <memory>
#include <mutex>

#include <torchtap/recorders/detail/fold.hpp>
#include <torchtap/recorders/detail/thread_sinks.hpp>

namespace torchtap::recorders::detail {

/// For reductions that do not depend on the order of samples: a thread that would have to wait folds into
/// sinks of its own (`ThreadSinks`), and so do all threads from then on.
class FoldBeside : public Fold {
 public:
  FoldBeside(Slots& slots, Prepare& prepare);
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  void fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) override;
  void settle() override;
  std::int64_t forget() override;
  std::int64_t samples() const noexcept override;

 protected:
  /// Null until two threads record at the same time.
  ThreadSinks* others() const noexcept { return sinks_.load(std::memory_order_acquire); }
  /// Folds into the sinks of this thread; false if there are none of these slots yet.
  bool fold_into(ThreadSinks* others, c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);
  /// Called under the lock. Folds samples, and makes sinks for the next ones of this thread.
  void open(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);
  /// Called under the lock.
  void fold_in_turn(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
    update(samples, first_slot);
    if (events_ == nullptr) return slots_.count_one();
    ++slots_.recorded;
    events_->fetch_add(1, std::memory_order_relaxed);
  }

 private:
  ThreadSinks& thread_sinks();

  // Where each thread counts: for a condition, which is told the number at every event, so that all threads
  // would read all their counters. Else null, and each thread has a counter.
  std::atomic<std::int64_t>* const events_;
  std::atomic<ThreadSinks*> sinks_{nullptr};
  std::once_flag once_;
  std::unique_ptr<ThreadSinks> owner_;
};

}  // namespace torchtap::recorders::detail
