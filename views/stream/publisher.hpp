#pragma once

/// Publishing tensors to other processes while a program runs.

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/send/stream.hpp>
#include <torchtap/views/stream/frame.hpp>
#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream {
namespace detail {
class DeviceCopies;
class Server;
class SourceState;
}  // namespace detail

/// Chained like LibTorch's own options: `PublisherOptions().bytes(1 << 30)`.
struct TORCHTAP_API PublisherOptions {
  /// The most shared memory for all readers, from 64 KiB on. The first reader gets 4 MiB of it; more is taken
  /// when a reader would miss frames or a frame takes more than half, as long as the system and the memory
  /// cgroups of this process leave four times as much. It is given back when the last reader has gone.
  TORCH_ARG(std::int64_t, bytes) = std::int64_t{256} << 20;
  /// For readers that do not choose.
  TORCH_ARG(WhenFull, when_full) = WhenFull::wait;
  /// The time that one frame waits for all slow readers together. Slow readers are then not waited for again.
  TORCH_ARG(std::chrono::nanoseconds, wait_at_most) = std::chrono::milliseconds(100);
  /// The folder in which readers find it; by default the first of `$XDG_RUNTIME_DIR/torchtap`,
  /// `/tmp/torchtap-UID` and `$HOME/.torchtap` that is, or can be made, a directory of this user alone.
  TORCH_ARG(std::string, directory);
  /// Goes with each frame.
  TORCH_ARG(std::int64_t, rank) = 0;
};

/// A reader, as its publisher knows it.
struct TORCHTAP_API ReaderInfo {
  std::int64_t pid = 0;
  Subscription subscription;   ///< what it wants
  std::int64_t lag_bytes = 0;  ///< how far it is behind
  std::int64_t offered = 0;    ///< frames that were for it
  std::int64_t received = 0;   ///< of these, as it says
  std::int64_t missed = 0;     ///< of these, as it says
  bool waits = false;          ///< the publisher waits for it
  bool demoted = false;        ///< the publisher waited for it too long, and stopped to
};

/// Counts of a publisher's work so far.
struct TORCHTAP_API PublisherCounters {
  std::int64_t published = 0;     ///< frames
  std::int64_t bytes = 0;         ///< of data
  std::int64_t without_data = 0;  ///< frames that only say why their tensor could not be sent
  std::int64_t waited_ns = 0;     ///< time for which threads of the program waited for readers
};

/// A module, or anything else that has a name, of a publisher. Any number of threads may call it. Cheap to
/// copy; the copies are one source.
class TORCHTAP_API Source {
 public:
  /// Whether any reader wants it at all: one atomic load. Ask before you compute a tensor that no reader
  /// wants.
  bool wanted() const noexcept;
  /// Publishes a copy of `tensor`, which may be changed afterwards. False if no reader wants it now. A tensor
  /// of another device is copied by the device, and published when that is done; this call does not wait for
  /// it. A tensor that cannot be sent (sparse, quantized, of more than eight dimensions, larger than half of
  /// the available memory, on a device without events for the end of a copy) arrives without data, with a
  /// text that says why.
  bool publish(const at::Tensor& tensor);

 private:
  friend class Publisher;
  explicit Source(std::shared_ptr<recorders::StreamSource> source);
  struct Counted;
  std::shared_ptr<Counted> counted_;
};

/// Publishes tensors under a name, by which readers in other processes of this user find it. Without readers
/// it costs next to nothing: its one thread sleeps. Linux only.
///
///     views::stream::Publisher publisher("resnet");
///     recorders::ForwardOutput maps(recorders::RecorderOptions().stream(publisher));
///     maps.attach(*model);
///
/// Each frame is written once into shared memory, whoever reads, without a system call unless more memory is
/// needed. Bytes of names and texts that are zero or not UTF-8 arrive as U+FFFD. No reader can stop, change
/// or crash the program: it waits for a slow one at most once for `wait_at_most`, and notices the death of
/// another.
///
/// Tensors of devices arrive when the device has copied them, behind all earlier tensors of the same source.
/// A thread of the publisher waits for that; it exists from the first such tensor on. At most `bytes / 2` of
/// them are on their way: then a frame for a reader that is waited for waits, at most `wait_at_most`, and any
/// that finds no room arrives without data and says so. The destructor waits for them, at most 2 seconds.
///
/// Any number of threads may call it. Recorders may outlive it; they publish nothing then. In a forked child
/// of the program each call does nothing.
class TORCHTAP_API Publisher {
 public:
  /// Throws `c10::ValueError` for a name that another program publishes under or that cannot be one (1 to 64
  /// letters, digits and `._-+@`), and for a directory that others may enter; `c10::Error` if the system
  /// refuses.
  explicit Publisher(std::string name, PublisherOptions options = {});
  /// Throws as the constructor does for a name that cannot be one and for a directory that cannot be used,
  /// and publishes nothing: for programs that start others, which will publish.
  static void check(const std::string& name, const std::string& directory = "");
  Publisher(Publisher&&) noexcept = default;
  Publisher& operator=(Publisher&& other) noexcept;
  ~Publisher();

  /// For `recorders::RecorderOptions::stream`.
  operator std::shared_ptr<recorders::Stream>() const;  // NOLINT: so that a publisher can be handed over
  /// A source that no recorder feeds.
  Source source(const std::string& path, const std::string& type = "", Kind kind = Kind::other);
  /// A text that goes with each frame from now on: "epoch 3". At most 4096 bytes of it are sent.
  void annotate(std::string text);

  /// The name that readers ask for.
  const std::string& name() const noexcept;
  /// The path of the socket.
  std::string socket() const;
  /// The readers that have joined: each gets the next frame of every source that it wants.
  std::vector<ReaderInfo> readers() const;
  /// Counts of its work so far.
  PublisherCounters counters() const;

 private:
  void close() noexcept;

  std::shared_ptr<detail::Server> server_;
  std::shared_ptr<detail::DeviceCopies> copies_;
};

}  // namespace torchtap::views::stream
