#pragma once

// Makes and reads the messages that a reader and a publisher exchange over their socket. Each message is one
// packet.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream::detail {

inline constexpr std::size_t kMostMessage = 65536;

enum class Message : std::uint32_t {
  subscribe = 0x31525454,  // "TTR1", from a reader: its first message, and whenever it wants something else
  status = 0x31535454,     // "TTS1", from anybody, and the answer
  welcome = 0x31575454,  // "TTW1", the answer to the first "TTR1", with two descriptors: memory, control page
  refused = 0x31455454,  // "TTE1", an answer: the rest of the packet says why
};

/// The answer to a reader's first message.
struct Welcome {
  std::uint64_t bytes = 0;     // of the memory
  std::uint64_t position = 0;  // where to begin
  std::uint16_t place = 0;
};

std::string write_subscribe(const Subscription& subscription);
std::string write_status();
std::string write_status(const std::string& text);
std::string write_welcome(const Welcome& welcome);
std::string write_refused(const std::string& why);

/// The kind of a message. Throws `c10::ValueError` for any other packet, and for a later version.
Message kind_of_message(const std::string& packet);
/// Each throws `c10::ValueError` if the packet is damaged.
Subscription read_subscribe(const std::string& packet);
Welcome read_welcome(const std::string& packet);
/// The text of a `status` or `refused`.
std::string read_text(const std::string& packet);

}  // namespace torchtap::views::stream::detail
