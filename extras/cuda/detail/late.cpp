// Launches what waits on the stream on which it was recorded.

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include <torchtap/base/capture.hpp>
#include <torchtap/cuda/detail/fold_on_device.hpp>
#include <torchtap/cuda/detail/late.hpp>

namespace torchtap::cuda::detail {

Version::Version(const at::Tensor& tensor) : counter_(tensor.unsafeGetTensorImpl()->version_counter()) {
  if (known()) version_ = counter_.current_version();
}

void Late::put(Pages& to, const at::Tensor& sample, bool captures, const std::shared_ptr<FoldOnDevice>& taker,
               const hooks::Forwards* forwards) {
  const c10::impl::VirtualGuardImpl guard(sample.device().type());
  const c10::Stream stream = guard.getStream(sample.device());
  const std::lock_guard lock(mutex_);
  auto queue = std::find_if(queues_.begin(), queues_.end(), [&](const Queue& one) {
    return one.stream == stream && one.captures == captures;
  });
  if (queue == queues_.end()) queue = queues_.insert(queue, Queue{stream, captures, {}, {}});
  to.put(sample, queue->batch, captures);
  queue->samples.push_back({taker, Version(sample)});
  queue->bytes += static_cast<std::int64_t>(sample.nbytes());
  if (!queue->ends) queue->ends = end_with(forwards);
  if (queue->bytes > most_ || (captures && !queue->ends)) launch(*queue);
}

bool Late::watch(const at::Tensor& sample, const std::shared_ptr<FoldOnDevice>& taker,
                 const hooks::Forwards* forwards) {
  const std::lock_guard lock(mutex_);
  if (watched_.empty() && !end_with(forwards)) return false;
  watched_.push_back({taker, Version(sample)});
  return true;
}

bool Late::end_with(const hooks::Forwards* forwards) {
  return forwards != nullptr && forwards->at_end([late = weak_from_this()] {
    if (const auto all = late.lock()) all->forward_ended();
  });
}

void Late::launch() {
  const std::lock_guard lock(mutex_);
  for (Queue& queue : queues_) launch(queue);
}

/// Called under the lock.
void Late::launch(Queue& queue) {
  const bool captures = base::is_capturing(queue.stream);
  if (queue.samples.empty() || (captures && !queue.captures)) return;
  const bool too_late = queue.captures && !captures;  // their capture has ended in the middle of a forward
  auto samples = std::exchange(queue.samples, {});
  queue.bytes = 0;
  for (std::size_t i = samples.size(); i-- > 0;) {
    if (!too_late && !samples[i].version.changed()) continue;
    queue.batch.forget(i);
    const char* const why =
        too_late ? "its capture ended while it waited" : "the program changed it in place while it waited";
    if (const auto taker = samples[i].taker.lock()) taker->lose_late(why, !queue.captures);
  }
  const c10::impl::VirtualGuardImpl guard(queue.stream.device_type());
  struct Back {
    const c10::impl::VirtualGuardImpl& guard;
    c10::Stream former;
    ~Back() { guard.exchangeStream(former); }
  } back{guard, guard.exchangeStream(queue.stream)};
  try {
    queue.batch.launch();
  } catch (...) {
    for (const Waiting& one : samples) {
      const auto taker = one.version.changed() ? nullptr : one.taker.lock();
      if (taker != nullptr) taker->lose_late("the device refused to add it", !queue.captures);
    }
    throw;
  }
}

void Late::forward_ended() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Waiting& one : std::exchange(watched_, {})) {
    const auto taker = one.version.changed() ? one.taker.lock() : nullptr;
    if (taker != nullptr) taker->be_on_time();
  }
  for (Queue& queue : queues_) {
    queue.ends = false;
    try {
      launch(queue);
    } catch (...) {  // counted as left out
    }
  }
}

}  // namespace torchtap::cuda::detail
