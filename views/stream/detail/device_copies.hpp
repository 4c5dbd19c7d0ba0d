#pragma once

// Sends tensors of devices to readers: copies them without the program's threads, publishes them in order.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include <torchtap/views/stream/detail/server.hpp>
#include <torchtap/views/stream/frame.hpp>

namespace torchtap::views::stream::detail {

/// A thread waits until the device has copied a tensor, and then publishes it. It exists from the first
/// tensor on. Any number of threads may call it; in a forked child each call does nothing.
class DeviceCopies {
 public:
  /// The time that a device may take at the end to finish its copies.
  static constexpr std::chrono::seconds kPatience{2};

  explicit DeviceCopies(std::shared_ptr<Server> server);
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  ~DeviceCopies();

  /// Publishes `tensor` once it is copied, behind all earlier tensors. A tensor on the CPU, and a frame
  /// without data, which says why, wait their turn, too. `frame` is as `Server::publish` wants it. Its text
  /// and result need not outlive the call.
  ///
  /// The tensors on their way take at most the memory of the largest frame. If there is no room, waits for
  /// some if one of the readers is waited for, for as long as `wait_at_most` says; then the frame arrives
  /// without data and says why. A tensor that cannot be copied arrives like that, too. Throws
  /// `std::bad_alloc` alone.
  void send(const std::shared_ptr<SourceState>& source, const at::Tensor& tensor, const Frame& frame,
            std::uint64_t readers);
  /// Publishes the tensors on their way, for which it waits for `kPatience` at most. Tensors that the device
  /// has not copied by then arrive without data, with the reason. Idempotent.
  void close() noexcept;

 private:
  struct Item;
  struct Queue;

  bool has_ended() const;
  bool has_thread();
  bool take_room(std::uint64_t bytes, bool waits);
  void give_room(std::uint64_t bytes);
  void run() noexcept;
  void finish(Item& item) noexcept;

  const std::shared_ptr<Server> server_;
  Queue* const queue_;  // a forked child does not destroy what a thread of its parent waits for
};

}  // namespace torchtap::views::stream::detail
