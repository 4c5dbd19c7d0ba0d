// Waits for devices, so that no thread of the program does.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/views/stream/detail/device_copies.hpp>
#include <torchtap/views/stream/detail/host_copy.hpp>

namespace torchtap::views::stream::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// Time between two checks whether a copy is done; copying a small tensor takes some 10 µs.
constexpr nanoseconds kShortestPause = std::chrono::microseconds(20);
constexpr nanoseconds kLongestPause = std::chrono::milliseconds(1);

void leave_out(Frame& frame, std::string& text, std::string why) {
  text = std::move(why);
  frame.without_data = true;
  frame.data = nullptr;
  frame.data_bytes = 0;
}

}  // namespace

/// A frame that waits for its tensor. Its texts lie here.
struct DeviceCopies::Item {
  std::shared_ptr<SourceState> source;
  Frame frame;
  std::uint64_t readers = 0;
  HandOver handed;
  std::string why;
  std::string result;
  std::optional<HostCopy> copy;
  std::uint64_t room = 0;  // bytes that it takes
};

struct DeviceCopies::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> items;
  std::uint64_t bytes = 0;  // the memory of the items, including the thread's current one
  bool closed = false;
  std::atomic<Clock::time_point> end{Clock::time_point::max()};  // nothing is waited for after it
  std::thread thread;
};

DeviceCopies::DeviceCopies(std::shared_ptr<Server> server) : server_(std::move(server)), queue_(new Queue) {}

DeviceCopies::~DeviceCopies() {
  close();
  if (!server_->in_child()) delete queue_;
}

void DeviceCopies::close() noexcept {
  if (server_->in_child()) return;
  {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->closed) return;
    queue_->closed = true;
    queue_->end = Clock::now() + kPatience;
  }
  queue_->changed.notify_all();
  if (queue_->thread.joinable()) queue_->thread.join();
}

bool DeviceCopies::has_ended() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->closed;
}

/// Starts the thread if there is none. False if the system has no thread left.
bool DeviceCopies::has_thread() {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->thread.joinable() || queue_->closed) return true;
  try {
    queue_->thread = base::start_thread("torchtap-copies", [this] { run(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

/// Reserves room for `bytes` bytes of tensors. False if there is no room.
bool DeviceCopies::take_room(std::uint64_t bytes, bool waits) {
  std::unique_lock lock(queue_->mutex);
  const auto fits = [&] { return queue_->bytes + bytes <= server_->most_bytes(); };
  if (!fits() && waits) {
    const auto begin = Clock::now();
    queue_->changed.wait_for(lock, server_->wait_at_most(), [&] { return fits() || queue_->closed; });
    server_->count_wait(Clock::now() - begin);
  }
  if (!fits()) return false;
  queue_->bytes += bytes;
  return true;
}

void DeviceCopies::give_room(std::uint64_t bytes) {
  if (bytes == 0) return;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->bytes -= bytes;
  }
  queue_->changed.notify_all();
}

void DeviceCopies::send(const std::shared_ptr<SourceState>& source, const at::Tensor& tensor,
                        const Frame& frame, std::uint64_t readers) {
  if (server_->in_child() || has_ended()) return;
  Item item;
  item.source = source;
  item.frame = frame;
  item.readers = readers;
  item.handed = server_->hand_over(readers);
  item.why = std::string(frame.text);
  item.result = std::string(frame.result);
  if (!has_thread()) {
    leave_out(item.frame, item.why, "the system has no thread that could wait for the device");
    return finish(item);
  }
  // A tensor that is too large is not copied; the server says so.
  const bool copied =
      !frame.without_data && frame.data_bytes != 0 && frame.data_bytes <= server_->most_bytes();
  if (copied && take_room(frame.data_bytes, item.handed.waits)) {
    item.room = frame.data_bytes;
    try {
      item.copy.emplace(tensor);
    } catch (const std::exception& error) {
      give_room(std::exchange(item.room, 0));
      leave_out(
          item.frame, item.why,
          c10::str("the tensor on ", tensor.device(), " could not be copied: ", base::first_line(error)));
    }
  } else if (copied) {
    leave_out(item.frame, item.why,
              c10::str("at most ", server_->most_bytes(),
                       " bytes of tensors are on their way from devices, and there was no room for ",
                       frame.data_bytes, " more; raise PublisherOptions::bytes"));
  }
  {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->closed) {
      if (item.copy.has_value()) item.copy->abandon();
      return;
    }
    source->under_way.fetch_add(1, std::memory_order_relaxed);
    queue_->items.push_back(std::move(item));
  }
  queue_->changed.notify_all();
}

void DeviceCopies::run() noexcept {
  std::unique_lock lock(queue_->mutex);
  for (;;) {
    queue_->changed.wait(lock, [&] { return !queue_->items.empty() || queue_->closed; });
    if (queue_->items.empty()) return;
    std::optional<Item> item = std::move(queue_->items.front());
    queue_->items.pop_front();
    lock.unlock();
    finish(*item);
    const std::shared_ptr<SourceState> source = std::move(item->source);
    const std::uint64_t room = item->room;
    item.reset();  // gives the device's memory back before the room
    source->under_way.fetch_sub(1, std::memory_order_release);
    give_room(room);
    lock.lock();
  }
}

/// Waits for the tensor of an item, and publishes it.
void DeviceCopies::finish(Item& item) noexcept try {
  Frame& frame = item.frame;
  try {
    for (nanoseconds pause = kShortestPause; item.copy.has_value() && !item.copy->done();
         pause = std::min(2 * pause, kLongestPause)) {
      TORCH_CHECK(Clock::now() < queue_->end.load(), "the publisher ended, and the device was not done ",
                  kPatience.count(), " s later");
      std::this_thread::sleep_for(pause);
    }
    if (item.copy.has_value()) frame.data = item.copy->data();
  } catch (const std::exception& error) {
    item.copy->abandon();
    leave_out(frame, item.why,
              c10::str("the tensor could not be copied from its device: ", base::first_line(error)));
  }
  frame.text = item.why;
  frame.result = item.result;
  server_->publish(*item.source, frame, item.readers, &item.handed);
} catch (const std::exception&) {  // no memory for a sentence
}

}  // namespace torchtap::views::stream::detail
