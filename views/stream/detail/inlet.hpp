#pragma once

// Gives a reader its frames, from shared memory or a pipe.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <torchtap/views/stream/frame.hpp>
#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream::detail {

/// The functions behind `Reader`; see there.
class Inlet {
 public:
  Inlet() = default;
  Inlet(Inlet&&) noexcept = default;
  Inlet& operator=(Inlet&&) noexcept = default;
  virtual ~Inlet() = default;

  virtual std::optional<Frame> next(std::chrono::nanoseconds timeout) = 0;
  virtual bool whole() const noexcept = 0;
  virtual void release() noexcept = 0;
  virtual bool ended() const noexcept = 0;
  virtual std::string broken() const = 0;
  virtual void subscribe(const Subscription& subscription) = 0;
  virtual std::uint64_t received() const noexcept = 0;
  virtual std::uint64_t missed() const noexcept = 0;
  virtual bool demoted() const noexcept = 0;
  /// The process that publishes.
  virtual std::int64_t process() const noexcept = 0;
};

}  // namespace torchtap::views::stream::detail
