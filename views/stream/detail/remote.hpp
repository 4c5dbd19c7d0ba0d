#pragma once

// A reader of a relay, over TCP.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <torchtap/views/stream/detail/inlet.hpp>
#include <torchtap/views/stream/detail/tcp.hpp>

namespace torchtap::views::stream::detail {

/// Not thread-safe.
class RemoteClient final : public Inlet {
 public:
  /// `name` is "tcp:HOST:PORT". Waits at most `patience` for somebody to listen there. Throws
  /// `c10::ValueError` if nothing listens there, or the other end refuses or is no relay. A relay that says
  /// nothing for `silence` is lost.
  RemoteClient(const std::string& name, Subscription subscription, const std::string& token,
               std::chrono::nanoseconds patience, std::chrono::nanoseconds silence);

  std::optional<Frame> next(std::chrono::nanoseconds timeout) override;
  bool whole() const noexcept override { return true; }
  void release() noexcept override {}
  bool ended() const noexcept override { return ended_; }
  std::string broken() const override { return ended_ ? broken_ : ""; }
  /// Returns when the wish was sent.
  void subscribe(const Subscription& subscription) override;
  std::uint64_t received() const noexcept override { return received_; }
  std::uint64_t missed() const noexcept override { return missed_; }
  bool demoted() const noexcept override { return false; }
  std::int64_t process() const noexcept override { return process_; }

 private:
  void introduce(const std::string& token);
  void await_welcome();
  std::optional<Frame> take(Moment deadline);
  bool take_message(Moment deadline);
  void obey(const std::string& packet);

  void end(const std::string& why);

  std::string name_;
  std::chrono::nanoseconds silence_;
  Descriptor socket_;
  Incoming incoming_;
  std::uint64_t received_ = 0;
  std::uint64_t missed_ = 0;
  std::int64_t process_ = 0;
  const base::MadeHere made_here_;
  bool ended_ = false;
  bool last_ = false;   // the relay said that nothing follows
  std::string broken_;  // why the stream broke off
};

/// Whether the name of a stream is the address of a relay: "tcp:HOST:PORT".
bool is_remote(const std::string& name) noexcept;

}  // namespace torchtap::views::stream::detail
