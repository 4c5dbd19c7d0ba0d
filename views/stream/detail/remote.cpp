// Reads frames from a relay, and checks every length before using it.
#include <cstring>
#include <sstream>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/detail/client.hpp>
#include <torchtap/views/stream/detail/handshake.hpp>
#include <torchtap/views/stream/detail/remote.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {
namespace {

constexpr const char* kPrefix = "tcp:";
constexpr auto kRelayAnswer = std::chrono::seconds(10);  // how long a relay may take to answer
constexpr std::size_t kEnough = 16;                      // enough to see how long a message or frame is

using State = Incoming::State;

}  // namespace

bool is_remote(const std::string& name) noexcept {
  return name.compare(0, std::strlen(kPrefix), kPrefix) == 0;
}

RemoteClient::RemoteClient(const std::string& name, Subscription subscription, const std::string& token,
                           std::chrono::nanoseconds patience, std::chrono::nanoseconds silence)
    : name_(name), silence_(silence) {
  check(kReader, subscription);
  if (subscription.label().empty()) subscription.label(program_name());
  const Address address = parse_address(kReader, name.substr(std::strlen(kPrefix)));
  socket_ = connect_tcp(kReader, address, deadline_after(patience));
  introduce(token);
  TORCH_CHECK_VALUE(send_message(socket_, write_subscribe(subscription), kRelayAnswer), kReader, ": \"",
                    name_, "\" closed the connection.");
  await_welcome();
}

/// Proves that this process has the token, if the relay asks for one, without sending it.
void RemoteClient::introduce(const std::string& token) {
  const State state = incoming_.fill(socket_, kHello, deadline_after(kRelayAnswer));
  TORCH_CHECK_VALUE(
      state == State::whole, kReader, ": \"", name_,
      state == State::end ? "\" closed the connection." : "\" does not answer as a relay does.");
  const std::string hello = incoming_.text(0, kHello);
  incoming_.clear();
  std::uint32_t magic = 0;
  std::uint16_t numbers[2] = {};
  std::memcpy(&magic, hello.data(), sizeof magic);
  std::memcpy(numbers, hello.data() + 4, sizeof numbers);
  TORCH_CHECK_VALUE(magic == kHelloMagic, kReader, ": at \"", name_,
                    "\" is something else than torchtap relay.");
  TORCH_CHECK_VALUE(numbers[0] == kVersion, kReader, ": \"", name_, "\" speaks version ", numbers[0],
                    ", and this torchtap version ", kVersion, ".");
  TORCH_CHECK_VALUE(numbers[1] == 0 || !token.empty(), kReader, ": \"", name_,
                    "\" wants a token; give the one of torchtap relay --token-file.");
  const Digest proof = numbers[1] == 0 ? Digest{} : hmac_sha256(token, std::string_view(hello).substr(8));
  const std::string answer = write_proof(proof);
  send_all(socket_, answer.data(), answer.size(), kRelayAnswer);
}

void RemoteClient::await_welcome() {
  const Moment deadline = deadline_after(kRelayAnswer);
  TORCH_CHECK_VALUE(incoming_.fill(socket_, kEnough, deadline) == State::whole, kReader, ": \"", name_,
                    "\" closed the connection, or does not answer as a relay does.");
  const std::size_t length = message_length(incoming_.data());
  TORCH_CHECK_VALUE(incoming_.fill(socket_, 8 + length, deadline) == State::whole, kReader, ": \"", name_,
                    "\" closed the connection, or does not answer as a relay does.");
  const std::string packet = incoming_.text(8, length);
  incoming_.clear();
  const Message kind = kind_of_message(packet);
  TORCH_CHECK_VALUE(kind != Message::refused, kReader, ": \"", name_, "\" refused: ", read_text(packet), ".");
  TORCH_CHECK_VALUE(kind == Message::status, kReader, ": \"", name_,
                    "\" does not answer as a relay does; use the address that torchtap relay printed.");
  obey(packet);
}

/// Lines of a key, a tab and a value.
void RemoteClient::obey(const std::string& packet) {
  std::istringstream lines(read_text(packet));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    const std::string key = line.substr(0, tab);
    const std::uint64_t value = std::strtoull(line.c_str() + tab + 1, nullptr, 10);
    if (key == "end") {
      last_ = true;
      broken_ = line.substr(tab + 1);
    }
    if (key == "missed") missed_ = std::max(missed_, value);
    if (key == "pid") process_ = static_cast<std::int64_t>(value);
  }
}

/// False if it has not come whole.
bool RemoteClient::take_message(Moment deadline) {
  const std::size_t length = message_length(incoming_.data());
  if (incoming_.fill(socket_, 8 + length, deadline) != State::whole) return false;
  const std::string packet = incoming_.text(8, length);
  incoming_.clear();
  const Message kind = kind_of_message(packet);
  TORCH_CHECK_VALUE(kind != Message::refused, kReader, ": \"", name_, "\" refused: ", read_text(packet), ".");
  if (kind == Message::status) obey(packet);
  return true;
}

std::optional<Frame> RemoteClient::take(Moment deadline) {
  for (;;) {
    State state = incoming_.fill(socket_, kEnough, deadline);
    std::uint32_t magic = 0;
    if (state == State::whole) std::memcpy(&magic, incoming_.data(), sizeof magic);
    if (state == State::whole && magic == kMessageMagic) {
      if (take_message(deadline)) continue;
      state = incoming_.fill(socket_, kEnough + 1, Moment::min());  // to know whether it ended
      if (state != State::end) return std::nullopt;
    }
    std::uint64_t length = 0;
    if (state == State::whole) {
      length = frame_length(incoming_.data(), kEnough);
      TORCH_CHECK_VALUE(length <= kMostRemote, kReader, ": \"", name_, "\" announced a frame of ", length,
                        " bytes; at most ", kMostRemote, " come over TCP.");
      state = incoming_.fill(socket_, length, deadline);
    }
    if (state == State::end)
      end(last_ ? broken_ : "the connection to the relay at \"" + name_ + "\" was lost");
    if (state != State::whole) return std::nullopt;
    const Frame frame = read_frame(incoming_.data(), length);
    TORCH_CHECK_VALUE(!frame.has_checksum || base::crc32(0, frame.data, frame.data_bytes) == frame.checksum,
                      kReader, ": the data of \"", std::string(frame.path), "\" arrived damaged from \"",
                      name_, "\".");
    incoming_.clear();
    ++received_;
    missed_ += frame.missed;
    return frame;
  }
}

std::optional<Frame> RemoteClient::next(std::chrono::nanoseconds timeout) {
  TORCH_CHECK_VALUE(made_here_, kReader, "::next: the process was forked, and the reader of \"", name_,
                    "\" belongs to the parent; make one in the child.");
  const Moment deadline = deadline_after(timeout);
  while (!ended_) {
    std::optional<Frame> frame;
    try {
      frame = take(std::min(deadline, deadline_after(silence_, incoming_.heard())));
    } catch (const std::exception&) {  // where the next frame begins is not known any more
      end("the relay at \"" + name_ + "\" sent something that is no frame");
      throw;
    }
    if (frame.has_value()) return frame;
    const Moment now = std::chrono::steady_clock::now();
    if (!ended_ && now >= deadline_after(silence_, incoming_.heard()))
      end(c10::str("nothing came from the relay at \"", name_, "\" for ",
                   std::chrono::duration<double>(silence_).count(), " s, so the connection was lost"));
    if (now >= deadline) break;
  }
  return std::nullopt;
}

/// Nothing follows. `why` is empty if all came.
void RemoteClient::end(const std::string& why) {
  ended_ = true;
  broken_ = why;
  socket_ = Descriptor();
}

void RemoteClient::subscribe(const Subscription& subscription) {
  check("views::stream::Reader::subscribe", subscription);
  Subscription named = subscription;
  if (named.label().empty()) named.label(program_name());
  if (!ended_) send_message(socket_, write_subscribe(named), kRelayAnswer);
}

}  // namespace torchtap::views::stream::detail
