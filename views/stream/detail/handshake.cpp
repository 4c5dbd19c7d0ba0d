// Writes and reads messages.
#include <cmath>
#include <cstring>
#include <string_view>

#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/stream/detail/handshake.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {
namespace {

void put_text(std::string& packet, const std::string& text) {
  base::put_number(packet, static_cast<std::uint16_t>(text.size()));
  packet += text;
}

std::string begin(Message kind, std::uint16_t more = 0) {
  std::string packet;
  base::put_number(packet, static_cast<std::uint32_t>(kind));
  base::put_number(packet, kVersion);
  base::put_number(packet, more);
  return packet;
}

constexpr std::size_t kBegin = 8;

/// Takes values from the front of a packet, behind which nothing has to follow.
class Parser : public base::ByteReader {
 public:
  using ByteReader::ByteReader;
  template <class T>
  T get() {
    return whole(ByteReader::get<T>());
  }
  std::string text() { return whole(ByteReader::text(get<std::uint16_t>())); }

 private:
  template <class T>
  T whole(T value) const {
    TORCH_CHECK_VALUE(good(), "views::stream: a message ends too early.");
    return value;
  }
};

constexpr double kNanoseconds = 1e9;

}  // namespace

std::string write_subscribe(const Subscription& subscription) {
  std::string packet = begin(Message::subscribe);
  std::uint32_t kinds = 0;
  for (const Kind kind : subscription.kinds()) kinds |= 1U << static_cast<unsigned>(kind);
  const double interval = subscription.hz() > 0 ? std::min(kNanoseconds / subscription.hz(), 9e18) : 0;
  base::put_number(packet, kinds);
  base::put_number(packet, static_cast<std::uint16_t>(subscription.when_full().has_value()
                                                          ? 1 + static_cast<int>(*subscription.when_full())
                                                          : 0));
  base::put_number(packet, static_cast<std::uint16_t>(subscription.names().size()));
  base::put_number(packet, static_cast<std::uint64_t>(subscription.every()));
  base::put_number(packet, static_cast<std::uint64_t>(interval));
  put_text(packet, subscription.label());
  for (const auto& name : subscription.names()) put_text(packet, name);
  return packet;
}

std::string write_status() {
  return begin(Message::status);
}
std::string write_status(const std::string& text) {
  return begin(Message::status) + text;
}
std::string write_refused(const std::string& why) {
  return begin(Message::refused) + why;
}

std::string write_welcome(const Welcome& welcome) {
  std::string packet = begin(Message::welcome, welcome.place);
  base::put_number(packet, welcome.bytes);
  base::put_number(packet, welcome.position);
  return packet;
}

Message kind_of_message(const std::string& packet) {
  Parser parser(packet);
  const auto kind = static_cast<Message>(parser.get<std::uint32_t>());
  const auto version = parser.get<std::uint16_t>();
  parser.get<std::uint16_t>();
  TORCH_CHECK_VALUE(kind == Message::subscribe || kind == Message::status || kind == Message::welcome ||
                        kind == Message::refused,
                    "views::stream: a message is of no kind that this torchtap (", TORCHTAP_VERSION,
                    ") knows.");
  TORCH_CHECK_VALUE(version == kVersion, "views::stream: a message has version ", version,
                    ", and this torchtap (", TORCHTAP_VERSION, ") speaks version ", kVersion,
                    "; publisher and reader need torchtaps that speak the same.");
  return kind;
}

Subscription read_subscribe(const std::string& packet) {
  Parser parser(std::string_view(packet).substr(kBegin));
  Subscription subscription;
  const auto kinds = parser.get<std::uint32_t>();
  for (std::size_t i = 0; i < kKinds; ++i) {
    if ((kinds >> i & 1) != 0) subscription.kinds().push_back(static_cast<Kind>(i));
  }
  TORCH_CHECK_VALUE(kinds == 0 || !subscription.kinds().empty(),
                    "views::stream: a reader asks for kinds that this torchtap (", TORCHTAP_VERSION,
                    ") does not know.");
  const auto when_full = parser.get<std::uint16_t>();
  TORCH_CHECK_VALUE(when_full <= 2, "views::stream: a reader wants policy ", when_full,
                    "; there are 0, 1 and 2.");
  if (when_full != 0) subscription.when_full(when_full == 1 ? WhenFull::wait : WhenFull::skip);
  const auto names = parser.get<std::uint16_t>();
  const auto every = parser.get<std::uint64_t>();
  subscription.every(static_cast<std::int64_t>(std::min<std::uint64_t>(every, INT64_MAX)));
  const auto interval = parser.get<std::uint64_t>();
  subscription.hz(interval == 0 ? 0 : kNanoseconds / static_cast<double>(interval));
  subscription.label(parser.text());
  for (std::size_t i = 0; i < names; ++i) subscription.names().push_back(parser.text());
  check("views::stream", subscription);
  return subscription;
}

Welcome read_welcome(const std::string& packet) {
  Parser parser(packet);
  parser.get<std::uint32_t>();
  parser.get<std::uint16_t>();
  Welcome welcome;
  welcome.place = parser.get<std::uint16_t>();
  welcome.bytes = parser.get<std::uint64_t>();
  welcome.position = parser.get<std::uint64_t>();
  return welcome;
}

std::string read_text(const std::string& packet) {
  return packet.size() > kBegin ? packet.substr(kBegin) : std::string();
}

}  // namespace torchtap::views::stream::detail
