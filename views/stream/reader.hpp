#pragma once

/// Reading what another process publishes.

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/stream/frame.hpp>
#include <torchtap/views/stream/publisher.hpp>
#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream {
namespace detail {
class Inlet;
}

/// A copy of the tensor in a frame, on the CPU. Throws `c10::ValueError` if the frame has no data, or a dtype
/// that this LibTorch does not have.
TORCHTAP_API at::Tensor to_tensor(const Frame& frame);

/// Chained like LibTorch's own options.
struct TORCHTAP_API ReaderOptions {
  /// Where publishers are, as `PublisherOptions::directory`; all of the default ones are looked at.
  TORCH_ARG(std::string, directory);
  /// How long to wait for the publisher to appear.
  TORCH_ARG(std::chrono::nanoseconds, wait) = std::chrono::nanoseconds(0);
  /// The secret that a relay expects from readers (`RelayOptions::token`).
  TORCH_ARG(std::string, token);
  /// A relay says something each second. When it was silent for so long, the connection is lost.
  TORCH_ARG(std::chrono::nanoseconds, silence) = std::chrono::seconds(10);
};

/// Reads frames of one publisher, of another process or this one, or over TCP by way of a `Relay`. One thread
/// at a time may call it.
///
///     views::stream::Reader reader("resnet", Subscription().names({"layer1*"}).hz(5));
///     while (auto frame = reader.next()) std::cout << frame->path << to_tensor(*frame).mean() << '\n';
class TORCHTAP_API Reader {
 public:
  /// `name` is that of a publisher on this machine, or "tcp:HOST:PORT" of a relay. Throws `c10::ValueError`
  /// if no process publishes under this name, or the publisher or relay refuses.
  explicit Reader(const std::string& name, const Subscription& subscription = {},
                  const ReaderOptions& options = {});
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  /// The next frame, which stays until the next call; nothing if none came in `timeout`, or at the end. It
  /// looks for one up to a thousand times a second. Throws `c10::ValueError` if the publisher's memory is
  /// damaged.
  std::optional<Frame> next(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
  /// Whether the frame is still as it was published. It is, unless it lies in the shared memory and the
  /// publisher would not wait for this reader any longer: ask when you have used it. Otherwise it counts as
  /// missed.
  bool whole() const noexcept;
  /// Lets the publisher overwrite the frame, before the next one is asked for.
  void release() noexcept;
  /// Whether the publisher ended or died, or the relay was lost, and everything was read.
  bool ended() const noexcept;
  /// Why the stream broke off before its program ended it: the program was killed, or the connection to the
  /// relay was lost. Empty if it did not, and while there is more to read.
  std::string broken() const;
  /// Changes what is wanted. Frames that were published before may still come. Throws as the constructor. Of
  /// a relay it waits for no answer, so that `next` throws if the relay refuses.
  void subscribe(const Subscription& subscription);

  /// Frames that were read whole, and those that were overwritten before: together all that were for it. The
  /// second is exact when it grows, and at the end.
  std::int64_t received() const noexcept;
  /// See `received`.
  std::int64_t missed() const noexcept;
  /// Whether the publisher waited for this reader too long, and stopped to.
  bool demoted() const noexcept;
  /// The publisher's process.
  std::int64_t publisher() const noexcept;

 private:
  std::unique_ptr<detail::Inlet> inlet_;
};

/// A publisher that runs.
struct TORCHTAP_API StreamInfo {
  std::string name;    ///< that readers ask for
  std::string socket;  ///< its path
  std::int64_t pid = 0;
  std::int64_t memory = 0;          ///< bytes that it shares with readers at the moment
  PublisherCounters counters;       ///< of its work so far
  std::vector<ReaderInfo> readers;  ///< those that have joined
};

/// The publishers of this user that answer, by name. Throws `c10::ValueError` for a directory that others may
/// enter.
TORCHTAP_API std::vector<StreamInfo> streams(const std::string& directory = "");

}  // namespace torchtap::views::stream
