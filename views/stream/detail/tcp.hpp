#pragma once

// TCP for the relay and its readers: addresses, connections, whole messages.
//
// The relay begins: "TTH1", u16 version, u16 1 if it wants a token, 16 bytes that it never said before. The
// reader answers "TTH1", u16 version, u16 0, and the HMAC-SHA256 of these 16 bytes with the token, or zeros.
// Then each side sends messages ("TTM1", u32 length, a packet as `messages.hpp` writes it), and the relay
// frames.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/stream/detail/sha256.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {

inline constexpr std::uint32_t kHelloMagic = 0x31485454;    // "TTH1"
inline constexpr std::uint32_t kMessageMagic = 0x314d5454;  // "TTM1"
inline constexpr std::size_t kNonce = 16;
inline constexpr std::size_t kHello = 8 + kNonce;
inline constexpr std::size_t kProof = 8 + sizeof(Digest);
inline constexpr std::uint64_t kMostRemote = std::uint64_t{1} << 30;  // bytes of a frame

using Moment = std::chrono::steady_clock::time_point;
/// The moment `after` from `from`, or the last one there is.
Moment deadline_after(std::chrono::nanoseconds after, Moment from = std::chrono::steady_clock::now());

struct Address {
  std::string host, port;
};
/// "HOST:PORT", "[::1]:7777". Throws `c10::ValueError`, which begins with `call`.
Address parse_address(const std::string& call, const std::string& text);

/// Listens. Throws `c10::ValueError` if the address cannot be had, or is not one of this machine alone unless
/// `anywhere`.
Descriptor listen_at(const std::string& call, const Address& address, bool anywhere);
/// The address at which a socket listens, or from which its other end comes: "127.0.0.1:7777".
std::string name_of_listener(const Descriptor& socket);
std::string name_of_peer(const Descriptor& socket);
/// The next connection, if there is one.
Descriptor accept_tcp(const Descriptor& listener);
/// Connects; while nothing listens there, tries again until the deadline. Throws `c10::ValueError` if nobody
/// does.
Descriptor connect_tcp(const std::string& call, const Address& address, Moment deadline);

/// Sends all bytes. False if the other end is gone, takes nothing for `patience`, or `stop` says so, which is
/// asked ten times a second while it waits.
bool send_all(const Descriptor& socket, const void* bytes, std::size_t size,
              std::chrono::nanoseconds patience, const std::atomic<bool>* stop = nullptr);
bool send_message(const Descriptor& socket, const std::string& packet, std::chrono::nanoseconds patience,
                  const std::atomic<bool>* stop = nullptr);

/// Bytes on their way in.
class Incoming {
 public:
  enum class State { whole, waiting, end };
  /// Takes bytes until there are `size` since `clear`, the deadline passes, or the connection ends. Memory
  /// grows with what really comes, whatever a peer announces.
  State fill(const Descriptor& socket, std::uint64_t size, Moment deadline);
  const char* data() const noexcept { return bytes_.data(); }
  std::string text(std::size_t from, std::size_t size) const { return {bytes_.data() + from, size}; }
  void clear() noexcept { filled_ = 0; }
  /// When something came last, or the object was made.
  Moment heard() const noexcept { return heard_; }

 private:
  std::vector<char> bytes_;
  std::uint64_t filled_ = 0;
  Moment heard_ = std::chrono::steady_clock::now();
};

/// The packet length of the message whose first 8 bytes these are. Throws `c10::ValueError` for anything
/// else.
std::size_t message_length(const char* bytes);

std::string write_hello(const std::string& nonce, bool wants_token);
std::string write_proof(const Digest& proof);

}  // namespace torchtap::views::stream::detail
