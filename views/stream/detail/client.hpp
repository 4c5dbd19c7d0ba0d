#pragma once

// A reader without tensors.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/stream/detail/arena_view.hpp>
#include <torchtap/views/stream/detail/inlet.hpp>
#include <torchtap/views/stream/detail/local_socket.hpp>
#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream::detail {

/// The public name that messages of a reader begin with.
inline constexpr const char* kReader = "views::stream::Reader";

/// The name of the program that runs, for `Subscription::label`.
std::string program_name();

/// Connects to the publisher called `name`, for which it waits at most `patience`; `path` becomes the path of
/// its socket. Throws `c10::ValueError`, whose message begins with `call`, if no publisher is there.
Descriptor find_publisher(const std::string& call, const std::string& name, const std::string& directory,
                          std::chrono::nanoseconds patience, std::string& path);

/// Asks the publisher at a socket for its status; empty if no publisher answers. Throws as `connect` does.
std::string ask_status(const std::string& path);

/// Not thread-safe.
class Client final : public Inlet {
 public:
  /// Waits at most `patience` for a publisher of this name to appear. Throws `c10::ValueError` if no
  /// publisher is there, or if it refuses.
  Client(const std::string& name, Subscription subscription, const std::string& directory,
         std::chrono::nanoseconds patience);

  /// The next frame, valid until the next call; nothing if none came in `timeout`, or at the end. A frame of
  /// a reader that the publisher waits for lies in the shared memory; others are copied. Throws
  /// `c10::ValueError` in a forked child, which does not have the memory.
  std::optional<Frame> next(std::chrono::nanoseconds timeout) override;
  /// Whether the frame that `next` returned has not been overwritten. If it has, it counts as missed.
  bool whole() const noexcept override { return !holding_ || (made_here_ && view_->valid()); }
  /// Lets the publisher overwrite the frame that `next` returned.
  void release() noexcept override;
  /// Whether the stream ended, or its program died, and everything was read.
  bool ended() const noexcept override { return ended_; }
  std::string broken() const override;
  void subscribe(const Subscription& subscription) override;

  std::uint64_t received() const noexcept override { return view_->received(); }
  std::uint64_t missed() const noexcept override { return view_->missed(); }
  bool demoted() const noexcept override { return made_here_ && view_->demoted(); }
  std::int64_t process() const noexcept override { return publisher_.pid; }

 private:
  void join(const Subscription& subscription);
  std::optional<Frame> take();
  bool listen(std::chrono::nanoseconds at_most);

  std::string name_;
  Descriptor socket_;
  Peer publisher_;
  std::optional<ArenaView> view_;
  std::vector<char> copy_;
  std::string refused_;  // what the publisher said last, if it refused
  std::uint64_t requests_ = 0;
  bool holding_ = false;  // a frame in the shared memory
  bool gone_ = false;     // the publisher
  const base::MadeHere made_here_;
  bool ended_ = false;
};

}  // namespace torchtap::views::stream::detail
