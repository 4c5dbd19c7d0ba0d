#pragma once

// A publisher without tensors: readers, their subscriptions, and the arena that they share.
//
// One thread serves readers: it hands over descriptors, matches subscriptions with sources and notices who
// died. The threads that publish never wait for it, and make no system call unless the arena is full, which
// then grows, or two of them publish at the same moment.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torchtap/views/stream/detail/arena_view.hpp>
#include <torchtap/views/stream/detail/local_socket.hpp>
#include <torchtap/views/stream/detail/source.hpp>
#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream::detail {

struct ServerOptions {
  std::uint64_t bytes = std::uint64_t{256} << 20;  // that the arena may become
  WhenFull when_full = WhenFull::wait;             // for readers that do not say
  std::chrono::nanoseconds wait_at_most = std::chrono::milliseconds(100);
  std::string directory;
  std::uint32_t rank = 0;
};

/// A reader, as its publisher knows it.
struct ReaderState {
  pid_t pid = 0;
  Subscription subscription;
  std::uint64_t lag_bytes = 0;
  std::uint64_t offered = 0;
  std::uint64_t received = 0;  // as the reader says
  std::uint64_t missed = 0;    // as the reader says
  bool waits = false;
  bool demoted = false;
};

struct ServerCounters {
  std::uint64_t published = 0;
  std::uint64_t bytes = 0;
  std::uint64_t without_data = 0;
  std::uint64_t waited_ns = 0;
};

/// When a thread of the program handed over a tensor that is published later, by another thread.
struct HandOver {
  std::uint64_t time_ns = 0;
  std::uint32_t thread = 0;
  std::uint64_t joins = 0;  // readers that came later do not get it
  bool waits = false;       // the publisher waits for one of its readers
  std::string annotation;
};

class Server {
 public:
  /// Throws `c10::ValueError` for a name that is taken or cannot be one, and `c10::Error` if the system
  /// refuses.
  Server(std::string name, ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  const std::string& name() const noexcept { return name_; }
  std::string socket() const { return listener_->path(); }

  std::shared_ptr<SourceState> add(SourceName name);
  /// Publishes `frame`, whose `sample`, `call`, `slot`, `result`, form and data the caller set, for `readers`
  /// (`SourceState::readers_of`). Waits as long as `wait_at_most` says for readers that read slowly. False if
  /// these are gone.
  bool publish(const SourceState& source, Frame frame, std::uint64_t readers) {
    return publish(source, frame, readers, nullptr);
  }
  /// Publishes a frame that was captured earlier (a device's copy), with the time, thread, annotation and
  /// readers of the moment of capture.
  bool publish(const SourceState& source, Frame frame, std::uint64_t readers, const HandOver* handed);
  /// The facts that a later `publish` needs about a frame for `readers` that is captured now.
  HandOver hand_over(std::uint64_t readers) const;
  /// The most bytes that a frame may take.
  std::uint64_t most_bytes() const noexcept { return options_.bytes / 2; }
  std::chrono::nanoseconds wait_at_most() const noexcept { return options_.wait_at_most; }
  /// Adds to the time for which threads of the program waited.
  void count_wait(std::chrono::nanoseconds time);
  /// The text that goes with each frame from now on.
  void annotate(std::string text);
  /// Readers that have joined: each gets the next frame of every source that it wants.
  std::vector<ReaderState> readers() const;
  ServerCounters counters() const;
  /// The memory that it shares with readers at the moment.
  std::uint64_t memory() const;
  /// Ends the stream: readers read what there is, and then its end. Idempotent.
  void close() noexcept;
  /// Whether this is a forked child of the process that made it, where each call does nothing.
  bool in_child() const noexcept { return !made_here_; }

 private:
  struct Place {
    bool taken = false;
    std::uint64_t joined = 0;     // how many readers came before it
    std::uint64_t free_from = 0;  // not taken again while frames before this position are unfinished
    Peer peer;
    Subscription subscription;
    Mapping control;
    std::uint64_t seen = 0;  // the cursor, as far as it was believed
    bool demoted = false;
  };
  struct Connection {
    Descriptor socket;
    std::chrono::steady_clock::time_point since;
    std::size_t place = kPlaces;  // none
    std::uint64_t requests = 0;
  };

  // server_publish.cpp
  bool may_grow() const noexcept;
  bool grow(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, std::uint64_t& waited_ns);
  void nap(std::unique_lock<std::mutex>& lock, std::uint64_t& waited_ns);
  bool fits(std::uint64_t bytes) noexcept;
  std::uint64_t slowest_of(std::uint64_t readers) noexcept;
  void follow_cursors() noexcept;
  bool make_room(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, std::uint64_t& waited_ns);
  bool waits_for(const Subscription& subscription) const noexcept {
    return subscription.when_full().value_or(options_.when_full) == WhenFull::wait;
  }
  std::uint64_t there_at(const HandOver& handed, std::uint64_t readers) const noexcept;
  void demote_in_the_way(std::uint64_t end) noexcept;

  // server_serve.cpp
  void serve();
  void welcome_new(std::vector<Connection>& connections);
  bool answer(Connection& connection);
  void join(Connection& connection, Subscription subscription);
  void change(Connection& connection, Subscription subscription);
  void leave(const Connection& connection);
  void match(std::size_t place);
  void match(SourceState& source, std::size_t place) const;
  std::string status() const;

  const std::string name_;
  const ServerOptions options_;
  const base::MadeHere made_here_;
  std::unique_ptr<Listener> listener_;
  Descriptor wake_;
  std::atomic<bool> closed_{false};

  mutable std::mutex sources_mutex_;  // taken before `mutex_`
  std::vector<std::weak_ptr<SourceState>> sources_;
  Rates rates_;

  mutable std::mutex mutex_;
  std::shared_ptr<Arena> arena_;  // while there are readers
  std::array<Place, kPlaces> places_;
  std::uint64_t present_ = 0;         // bit `i`: there is a reader in place `i`
  std::uint64_t waiting_ = 0;         // bit `i`: the publisher waits for it
  std::uint64_t joins_ = 0;           // readers that ever came
  std::uint64_t limit_ = 0;           // up to which the ring is known to be free
  bool growing_ = false;              // a thread takes memory for a larger ring
  std::string small_because_;         // why there was no memory for one
  std::uint64_t small_until_ns_ = 0;  // no check before this moment
  std::string annotation_;
  ServerCounters counters_;

  std::thread thread_;
};

}  // namespace torchtap::views::stream::detail
