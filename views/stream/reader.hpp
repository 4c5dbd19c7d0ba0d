#pragma once

/// Reads the tensors that another process publishes.

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
  /// The folder with the publishers' sockets, as `PublisherOptions::directory`; by default all of its default
  /// folders are searched.
  TORCH_ARG(std::string, directory);
  /// The time to wait for the publisher to appear.
  TORCH_ARG(std::chrono::nanoseconds, wait) = std::chrono::nanoseconds(0);
};

/// Reads frames of one publisher, of another process or this one, or frames that come through a pipe, from
/// another machine or a file. One thread at a time may call it.
///
///     views::stream::Reader reader("resnet", Subscription().names({"layer1*"}).hz(5));
///     while (auto frame = reader.next()) std::cout << frame->path << to_tensor(*frame).mean() << '\n';
class TORCHTAP_API Reader {
 public:
  /// `name` is a publisher's on this machine; "-" reads standard input. Throws `c10::ValueError` if no
  /// process publishes under this name, or the publisher refuses.
  explicit Reader(const std::string& name, const Subscription& subscription = {},
                  const ReaderOptions& options = {});
  /// Frames that come through a pipe, a socket or a file, as `torchtap tail NAME --frames` writes them. The
  /// subscription chooses among them. `descriptor` stays the caller's, and open. Waits for the first frame,
  /// and throws `c10::ValueError` if there are none.
  static Reader from(int descriptor, const Subscription& subscription = {});
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
  /// Whether the publisher ended or died, or nothing more comes, and everything was read.
  bool ended() const noexcept;
  /// Why the stream broke off before its program ended it: the program, or the sender of its frames, was
  /// killed. Empty if it did not, and while there is more to read.
  std::string broken() const;
  /// Changes the subscription. Frames that were published before may still come. Throws as the constructor.
  void subscribe(const Subscription& subscription);

  /// The number of frames that were read whole, and of frames that were overwritten before: together all
  /// frames for this reader. The second is exact when it grows, and at the end. For frames that come through
  /// a pipe, the second is the count of the reader that they came from.
  std::int64_t received() const noexcept;
  /// See `received`.
  std::int64_t missed() const noexcept;
  /// Whether the publisher waited for this reader too long, and stopped to.
  bool demoted() const noexcept;
  /// The publisher's process.
  std::int64_t publisher() const noexcept;

 private:
  explicit Reader(std::unique_ptr<detail::Inlet> inlet);
  std::unique_ptr<detail::Inlet> inlet_;
};

/// A publisher that runs.
struct TORCHTAP_API StreamInfo {
  std::string name;    ///< that readers ask for
  std::string socket;  ///< its path
  std::int64_t pid = 0;
  std::int64_t memory = 0;          ///< bytes that it shares with readers at the moment
  PublisherCounters counters;       ///< of its work so far
  std::vector<ReaderInfo> readers;  ///< readers that have joined
};

/// The publishers of this user that answer, by name. Throws `c10::ValueError` for a directory that others may
/// enter.
TORCHTAP_API std::vector<StreamInfo> streams(const std::string& directory = "");

}  // namespace torchtap::views::stream
