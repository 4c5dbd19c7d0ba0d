// Sockets of TCP, never waited on without an end.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/detail/handshake.hpp>
#include <torchtap/views/stream/detail/tcp.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr auto kGlance = milliseconds(100);
constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& call, const Address& address, bool passive) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  TORCH_CHECK_VALUE(error == 0, call, ": \"", address.host, ":", address.port,
                    "\" is no address: ", ::gai_strerror(error), ".");
  return {found, &::freeaddrinfo};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const ip = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(ip->sin_addr.s_addr) >> 24 == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  const auto* const ip = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LOOPBACK(&ip->sin6_addr) != 0;
}

std::string text_of(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  const bool six = address.ss_family == AF_INET6;
  return (six ? "[" : "") + std::string(host) + (six ? "]:" : ":") + port;
}

/// Small messages go at once, and a machine that vanished is noticed after a while.
void set_up(const Descriptor& socket) {
  const int on = 1;
  const int idle = 30;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

/// Waits for `events`. False if they did not come.
bool wait_for(const Descriptor& socket, short events, nanoseconds at_most) {
  pollfd polled{socket.get(), events, 0};
  const auto count = std::max<std::int64_t>(at_most.count(), 0);
  const timespec limit{count / 1000000000, count % 1000000000};
  return ::ppoll(&polled, 1, &limit, nullptr) > 0;
}

/// 0, or an errno.
int try_connect(const Descriptor& socket, const addrinfo& to, Moment deadline) {
  if (::connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket, POLLOUT, deadline - Clock::now())) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

Moment deadline_after(nanoseconds after, Moment from) {
  return after >= Moment::max() - from ? Moment::max() : from + after;
}

Address parse_address(const std::string& call, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool number = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos && std::stoi(port) <= 65535;
  TORCH_CHECK_VALUE(number && !host.empty() && (bracketed || host.find(':') == std::string::npos), call,
                    ": \"", text,
                    "\" is no address; expected HOST:PORT, such as 127.0.0.1:7777 or [::1]:7777.");
  return {host, port};
}

Descriptor listen_at(const std::string& call, const Address& address, bool anywhere) {
  const Addresses found = resolve(call, address, /*passive=*/true);
  TORCH_CHECK_VALUE(anywhere || is_loopback(found->ai_addr), call, ": other machines reach \"", address.host,
                    "\", so readers have to know a token; give one, or listen at 127.0.0.1.");
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) system_error("make a socket", errno);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens =
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(socket.get(), 64) == 0;
  TORCH_CHECK_VALUE(listens, call, ": cannot listen at \"", address.host, ":", address.port,
                    "\": ", std::strerror(errno), ".");
  return socket;
}

std::string name_of_listener(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return text_of(address, size);
}

std::string name_of_peer(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return text_of(address, size);
}

Descriptor accept_tcp(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) set_up(socket);
  return socket;
}

Descriptor connect_tcp(const std::string& call, const Address& address, Moment deadline) {
  const Addresses found = resolve(call, address, /*passive=*/false);
  const Moment patience = std::max(deadline, deadline_after(std::chrono::seconds(10)));
  for (;;) {
    int error = 0;
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      Descriptor socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket) system_error("make a socket", errno);
      error = try_connect(socket, *to, patience);
      if (error != 0) continue;
      set_up(socket);
      return socket;
    }
    TORCH_CHECK_VALUE(error == ECONNREFUSED && Clock::now() < deadline, call, ": cannot connect to \"",
                      address.host, ":", address.port, "\": ", std::strerror(error),
                      "; does torchtap relay run there?");
    std::this_thread::sleep_for(milliseconds(20));
  }
}

bool send_all(const Descriptor& socket, const void* bytes, std::size_t size, nanoseconds patience,
              const std::atomic<bool>* stop) {
  const char* at = static_cast<const char*>(bytes);
  Moment deadline = deadline_after(patience);
  while (size != 0) {
    const ssize_t sent = ::send(socket.get(), at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += sent;
      size -= static_cast<std::size_t>(sent);
      deadline = deadline_after(patience);
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return false;
    if (Clock::now() >= deadline || (stop != nullptr && stop->load())) return false;
    wait_for(socket, POLLOUT, std::min<nanoseconds>(kGlance, deadline - Clock::now()));
  }
  return true;
}

bool send_message(const Descriptor& socket, const std::string& packet, nanoseconds patience,
                  const std::atomic<bool>* stop) {
  std::string message;
  put(message, kMessageMagic);
  put(message, static_cast<std::uint32_t>(packet.size()));
  message += packet;
  return send_all(socket, message.data(), message.size(), patience, stop);
}

Incoming::State Incoming::fill(const Descriptor& socket, std::uint64_t size, Moment deadline) {
  while (filled_ < size) {
    const std::uint64_t room = std::min(size - filled_, std::max(kPiece, filled_));
    if (bytes_.size() < filled_ + room) bytes_.resize(filled_ + room);
    const ssize_t got = ::recv(socket.get(), bytes_.data() + filled_, room, MSG_DONTWAIT);
    if (got > 0) {
      filled_ += static_cast<std::uint64_t>(got);
      heard_ = Clock::now();
      continue;
    }
    if (got == 0) return State::end;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return State::end;
    const Moment now =
        Clock::now();  // compared before it is subtracted, because the deadline may be the first moment
    if (now >= deadline) return State::waiting;
    wait_for(socket, POLLIN, std::min<nanoseconds>(deadline - now, std::chrono::seconds(60)));
  }
  return State::whole;
}

std::size_t message_length(const char* bytes) {
  std::uint32_t magic = 0;
  std::uint32_t length = 0;
  std::memcpy(&magic, bytes, sizeof magic);
  std::memcpy(&length, bytes + 4, sizeof length);
  TORCH_CHECK_VALUE(
      magic == kMessageMagic && length >= 8 && length <= kMostMessage,
      "views::stream: the other end of a connection sent something that is no message of this protocol.");
  return length;
}

std::string write_hello(const std::string& nonce, bool wants_token) {
  std::string hello;
  put(hello, kHelloMagic);
  put(hello, kVersion);
  put(hello, static_cast<std::uint16_t>(wants_token ? 1 : 0));
  return hello + nonce;
}

std::string write_proof(const Digest& proof) {
  std::string text;
  put(text, kHelloMagic);
  put(text, kVersion);
  put(text, std::uint16_t{0});
  return text.append(reinterpret_cast<const char*>(proof.data()), proof.size());
}

}  // namespace torchtap::views::stream::detail
