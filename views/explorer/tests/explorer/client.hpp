#pragma once

#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <regex>
#include <string>

#include <torchtap/views/explorer/detail/http_server.hpp>

#include "support.hpp"

/// Clients of a server, as strangers write them.
namespace support {

namespace parts = explorer::detail;

/// A connection to a server on this machine.
class Client {
 public:
  explicit Client(unsigned port, bool v6 = false)
      : socket_(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (v6) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(static_cast<std::uint16_t>(port));
      address.sin6_addr = in6addr_loopback;
      connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    }
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  int descriptor() const { return socket_; }
  void send(const std::string& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t sent = ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return;
      done += static_cast<std::size_t>(sent);
    }
  }
  /// What comes until `enough(so far)`, or until the other side closes.
  template <class Function>
  std::string receive(Function&& enough) {
    std::string all = std::move(left_);
    left_.clear();
    char part[65536];
    while (!enough(all)) {
      const ssize_t got = ::recv(socket_, part, sizeof(part), 0);
      if (got <= 0) break;
      all.append(part, static_cast<std::size_t>(got));
    }
    return all;
  }
  std::string receive_all() {
    return receive([](const std::string&) { return false; });
  }
  std::size_t receive_exactly(std::size_t size, std::string& to) {
    std::string all = receive([&](const std::string& so_far) { return so_far.size() >= size; });
    left_ = all.size() > size ? all.substr(size) : "";
    to = all.substr(0, size);
    return to.size();
  }

 private:
  int socket_;
  bool connected_;
  std::string left_;
};

struct Response {
  int status = 0;
  std::string head, body;

  bool has(const std::string& header) const { return head.find(header) != std::string::npos; }
};

/// A server of a net that trained.
struct Served {
  nn::Sequential net{nn::Linear(6, 5), nn::ReLU(), nn::Linear(5, 3)};
  explorer::Explorer watched{explorer::ExplorerOptions().every(1).name("run <1>")};
  std::unique_ptr<parts::HttpServer> server;
  bool v6 = false;
  unsigned port = 0;
  std::string token;

  explicit Served(const explorer::ServeOptions& options = {}) {
    watched.attach(*net);
    train(3);
    server =
        std::make_unique<parts::HttpServer>(parts::Runs{parts::models_of(watched).first()->run()}, options);
    std::smatch found;
    const std::string url = server->url();
    BOOST_REQUIRE(std::regex_match(
        url, found, std::regex("http://(127\\.0\\.0\\.1|\\[::1\\]):(\\d+)/#token=([0-9a-f]{32})")));
    v6 = found[1] == "[::1]";
    port = static_cast<unsigned>(std::stoul(found[2]));
    token = found[3];
  }
  void train(int steps) {
    for (int step = 0; step < steps; ++step) {
      const at::Tensor loss = net->forward(torch::randn({4, 6})).pow(2).mean();
      loss.backward();
      watched.scalar("loss", loss);
    }
  }
  std::string host() const { return (v6 ? "[::1]:" : "127.0.0.1:") + std::to_string(port); }
  std::string authorization() const { return "Authorization: Bearer " + token + "\r\n"; }
  Response ask(const std::string& text) const {
    Client client(port, v6);
    client.send(text);
    const std::string all = client.receive_all();
    Response response;
    const std::size_t end = all.find("\r\n\r\n");
    if (all.size() < 12 || end == std::string::npos) return response;
    response.status = std::stoi(all.substr(9, 3));
    response.head = all.substr(0, end + 2);
    response.body = all.substr(end + 4);
    return response;
  }
  Response get(const std::string& path, const std::string& headers) const {
    return ask("GET " + path + " HTTP/1.1\r\nHost: " + host() + "\r\nConnection: close\r\n" + headers +
               "\r\n");
  }
  Response get(const std::string& path) const { return get(path, authorization()); }
  /// PUT of what changes the first run.
  Response put(const std::string& text, const std::string& headers) const {
    return ask("PUT /api/v1/runs/r0/control HTTP/1.1\r\nHost: " + host() + "\r\nConnection: close\r\n" +
               headers + "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text);
  }
  std::string origin() const { return "Origin: http://" + host() + "\r\n"; }

  /// A WebSocket: the answer to its handshake.
  std::string open_live(Client& client, const std::string& origin) const {
    client.send("GET /api/v1/live HTTP/1.1\r\nHost: " + host() + "\r\nOrigin: " + origin +
                "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    std::string head, byte;
    while (head.find("\r\n\r\n") == std::string::npos && client.receive_exactly(1, byte) == 1) head += byte;
    return head;
  }
};

/// A text message from a client, masked by zeros.
inline std::string frame(const std::string& text) {
  std::string bytes = "\x81";
  bytes += static_cast<char>(0x80 | text.size());
  return bytes + std::string(4, '\0') + text;
}

/// The next message of a server: its first byte and its payload.
inline std::pair<int, std::string> next_message(Client& client) {
  std::string head, payload;
  if (client.receive_exactly(2, head) < 2) return {0, ""};
  std::size_t size = static_cast<unsigned char>(head[1]);
  if (size == 126) {
    std::string more;
    client.receive_exactly(2, more);
    size = static_cast<std::size_t>(static_cast<unsigned char>(more[0])) << 8U |
           static_cast<unsigned char>(more[1]);
  }
  client.receive_exactly(size, payload);
  return {static_cast<unsigned char>(head[0]), payload};
}

}  // namespace support
