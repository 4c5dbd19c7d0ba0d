// Hands samples of a stream to the launcher.
#include "streaming.hpp"

#include <ATen/Functions.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/storage/file.hpp>

#include "area.hpp"
#include "kept_samples.hpp"
#include "publishing.hpp"

namespace torchtap::tools::preload {
namespace {

std::int64_t now(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t number_of_this_thread() noexcept {
  static std::atomic<std::int64_t> next{0};
  static thread_local const std::int64_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

std::string obstacle(const at::Tensor& tensor) {
  if (!tensor.defined()) return "the tensor is undefined";
  if (tensor.is_quantized()) return "the tensor is quantized; record its values with recorders::dequantized";
  if (!base::is_strided(tensor)) return "the tensor has no bytes: " + base::instead_of_strided(tensor);
  if (!storage::can_hold(tensor))
    return c10::str("the tensor has dtype ", tensor.scalar_type(), " on ", tensor.device());
  return {};
}

class SentModule final : public recorders::StreamSource {
 public:
  SentModule(std::uint32_t number, Wanted& wanted) : number_(number), wanted_(wanted) {}

  bool wanted() const noexcept override { return wanted_.anything.load(std::memory_order_acquire) != 0; }
  std::uint64_t receivers(std::int64_t event) noexcept override {
    const std::uint64_t every = wanted_.every.load(std::memory_order_relaxed);
    if (every > 1 && static_cast<std::uint64_t>(event) % every != 0) return 0;
    const auto interval = static_cast<std::int64_t>(wanted_.interval_ns.load(std::memory_order_relaxed));
    if (interval != 0) {
      const std::int64_t time = now(CLOCK_MONOTONIC);
      std::int64_t last = last_.load(std::memory_order_relaxed);
      if (last != 0 && time - last < interval) return 0;
      if (!last_.compare_exchange_strong(last, time, std::memory_order_relaxed)) return 0;
    }
    return wanted() ? 1 : 0;
  }
  void send(const at::Tensor& tensor, const recorders::StreamSample& sample,
            std::uint64_t /*receivers*/) override {
    Publishing& here = *Publishing::here();
    if (!here.can_send()) return;
    const base::RecordingMode quiet;
    const std::string why = obstacle(tensor);
    const std::string_view text = why.empty() ? sample.result : std::string_view(why);
    c10::SmallVector<std::int64_t, 16> numbers;
    if (why.empty()) numbers.append(tensor.sizes().begin(), tensor.sizes().end());
    for (const std::int64_t one : {sample.sample, sample.call, sample.slot, now(CLOCK_REALTIME),
                                   number_of_this_thread(), static_cast<std::int64_t>(text.size())})
      numbers.push_back(one);
    const std::size_t bytes = why.empty() ? tensor.nbytes() : 0;
    char* data = nullptr;
    Kept* const kept = here.room_for(number_, Kept::sent, numbers, bytes + text.size(), data);
    kept->dtype = why.empty() ? static_cast<std::int32_t>(tensor.scalar_type()) : -1;
    if (bytes != 0) copy_bytes(tensor, data);
    std::memcpy(data + bytes, text.data(), text.size());
    kept->ready.store(1, std::memory_order_release);
    here.sent(bytes + text.size());
  }

 private:
  const std::uint32_t number_;
  Wanted& wanted_;
  std::atomic<std::int64_t> last_{0};
};

}  // namespace

std::shared_ptr<recorders::StreamSource> Streaming::source(const storage::EntryId& id) {
  Publishing& here = *Publishing::here();
  const std::lock_guard lock(mutex_);
  if (wanted_left_ == 0) {
    // A page of its own: the launcher keeps it mapped.
    char* const room = here.shared(2 * kPageBytes, wanted_at_);
    if (room == nullptr) throw std::runtime_error("there is no more memory to share with the launcher.");
    const std::uint64_t skipped = (kPageBytes - wanted_at_ % kPageBytes) % kPageBytes;
    wanted_at_ += skipped;
    wanted_ = reinterpret_cast<Wanted*>(room + skipped);
    wanted_left_ = kPageBytes / sizeof(Wanted);
  }
  auto* const wanted = new (wanted_++) Wanted();
  --wanted_left_;
  wanted->anything = here.readers().value_or(0) > 0 ? 1 : 0;  // until the launcher knows better
  std::ostringstream text;
  {
    core::OutputArchive archive(text);
    archive(id.path, id.aliases, id.type, id.kind, std::exchange(wanted_at_, wanted_at_ + sizeof(Wanted)));
  }
  const std::uint32_t number = sources_++;
  here.keep_text(number, Kept::source, text.str());
  return std::make_shared<SentModule>(number, *wanted);
}

void Streaming::wait_for(std::int64_t readers) {
  const auto wait = [&] {
    const auto now = Publishing::here()->readers();
    return now.has_value() && *now < readers;
  };
  while (wait()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace torchtap::tools::preload
