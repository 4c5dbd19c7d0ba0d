#pragma once

// A reader of frames that come through a pipe, a socket or a file.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torchtap/base/process.hpp>
#include <torchtap/views/stream/detail/inlet.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {

/// Not thread-safe.
class PipedFrames final : public Inlet {
 public:
  /// Reads from `descriptor`, which stays open. Waits for the first frame. Throws `c10::ValueError` if what
  /// comes are no frames.
  PipedFrames(int descriptor, Subscription subscription);

  std::optional<Frame> next(std::chrono::nanoseconds timeout) override;
  bool whole() const noexcept override { return true; }
  void release() noexcept override {}
  bool ended() const noexcept override { return ended_; }
  std::string broken() const override { return ended_ ? broken_ : ""; }
  void subscribe(const Subscription& subscription) override;
  std::uint64_t received() const noexcept override { return received_; }
  std::uint64_t missed() const noexcept override { return missed_; }
  bool demoted() const noexcept override { return false; }
  std::int64_t process() const noexcept override { return process_; }

 private:
  bool fill(std::uint64_t size, Moment deadline);
  std::optional<Frame> take(Moment deadline);
  void obey(std::string_view lines);
  bool wanted(const Frame& frame);

  int descriptor_;
  Subscription subscription_;
  std::vector<char> bytes_;   // the frame that comes, and nothing of the one behind it
  std::uint64_t filled_ = 0;  // bytes of it that have come
  std::uint64_t received_ = 0;
  std::uint64_t missed_ = 0;
  std::int64_t process_ = 0;
  const base::MadeHere made_here_;
  std::map<std::string, std::uint64_t> last_ns_;  // of each source, the last frame that was taken
  bool last_ = false;                             // nothing follows, as the writer said
  bool ended_ = false;
  std::string broken_;  // why the stream broke off
};

}  // namespace torchtap::views::stream::detail
