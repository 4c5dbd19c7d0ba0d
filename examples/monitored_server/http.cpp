#include "http.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <iostream>
#include <optional>
#include <system_error>

namespace {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "socket");
  }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Nothing if the client leaves in the middle or sends more than 16 MiB.
std::optional<Request> read_request(int connection) {
  std::string text;
  std::size_t head = std::string::npos, length = 0;
  while (head == std::string::npos || text.size() < head + length) {
    char bytes[65536];
    const ssize_t got = ::recv(connection, bytes, sizeof bytes, 0);
    if (got <= 0 || text.size() > std::size_t{16} << 20) return {};
    text.append(bytes, static_cast<std::size_t>(got));
    if (head != std::string::npos) continue;
    const auto end = text.find("\r\n\r\n");
    if (end == std::string::npos) continue;
    head = end + 4;
    const auto field = text.find("Content-Length: ");
    if (field < end) length = std::stoul(text.substr(field + 16));
  }
  return Request{text.substr(0, text.find(" HTTP/")), text.substr(head, length)};
}

void write_response(int connection, const Response& response) {
  const std::string text =
      "HTTP/1.1 " + std::to_string(response.status) + (response.status == 200 ? " OK" : " Bad Request") +
      "\r\nContent-Type: " + response.type + "\r\nContent-Length: " + std::to_string(response.body.size()) +
      "\r\nConnection: close\r\n\r\n" + response.body;
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return;
    sent += static_cast<std::size_t>(now);
  }
}

}  // namespace

void serve(int port, const std::function<Response(const Request&)>& answer) {
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t size = sizeof address;
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener.get(), 16) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "port " + std::to_string(port));
  }
  std::cout << "http://127.0.0.1:" << ntohs(address.sin_port) << std::endl;
  for (bool last = false; !last;) {
    const Socket connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto request = read_request(connection.get());
    if (!request) continue;
    Response response;
    try {
      response = answer(*request);
    } catch (const std::exception& error) {
      response = {"text/plain", std::string(error.what()) + "\n", 400, false};
    }
    write_response(connection.get(), response);
    last = response.last;
  }
}
