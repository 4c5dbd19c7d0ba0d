#pragma once

/// Sends a stream on over TCP, to readers on other machines.

#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::views::stream {

/// Chained like LibTorch's own options.
struct TORCHTAP_API RelayOptions {
  /// Where it listens, "HOST:PORT"; port 0 is any that is free.
  TORCH_ARG(std::string, listen) = "127.0.0.1:0";
  /// The secret that readers must have, at least 16 characters. Needed for an address that other machines
  /// reach. The token itself is never sent; tensors are, as they are: nothing is encrypted.
  TORCH_ARG(std::string, token);
  /// Where publishers are, as `PublisherOptions::directory`; all of the default ones are looked at.
  TORCH_ARG(std::string, directory);
  /// How many readers there may be at once, at most 60.
  TORCH_ARG(std::int64_t, readers) = 16;
  /// A reader that takes nothing for so long is given up.
  TORCH_ARG(std::chrono::nanoseconds, patience) = std::chrono::seconds(60);
  /// A reader for which there is no frame for so long is told that the relay lives; see
  /// `ReaderOptions::silence`.
  TORCH_ARG(std::chrono::nanoseconds, heartbeat) = std::chrono::seconds(1);
};

/// Reads one publisher for any number of readers elsewhere, `Reader("tcp:HOST:PORT")`, in threads of its own,
/// in any process of the publisher's user. Each reader has its own subscription. No reader is waited for: a
/// slow one misses frames, and is told how many.
class TORCHTAP_API Relay {
 public:
  /// Throws `c10::ValueError` if nobody publishes under this name, for an address that cannot be had, and for
  /// one that other machines reach if there is no token.
  explicit Relay(const std::string& name, const RelayOptions& options = {});
  Relay(Relay&&) noexcept;
  Relay& operator=(Relay&&) noexcept;
  /// Ends all connections; readers are told that the relay was stopped.
  ~Relay();

  /// Where it listens: "127.0.0.1:43071".
  std::string address() const;
  /// How many readers there are.
  std::int64_t readers() const noexcept;
  /// How many connections were refused: without the token, in another language, or one too many.
  std::int64_t refused() const noexcept;
  /// Whether the publisher ended.
  bool ended() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torchtap::views::stream
