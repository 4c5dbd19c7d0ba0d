// The server, as browsers and strangers see it.
#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <torch/torch.h>
#include <unistd.h>

#include <random>
#include <regex>
#include <thread>

#include <torchtap/views/explorer/detail/answers.hpp>
#include <torchtap/views/explorer/detail/bytes.hpp>
#include <torchtap/views/explorer/detail/http_server.hpp>
#include <torchtap/views/explorer/detail/wire.hpp>
#include <torchtap/views/explorer/serve.hpp>

#include "support.hpp"

using namespace support;
namespace parts = explorer::detail;
using torchtap_test::says;

namespace {

/// A connection to a server on this machine.
class Client {
 public:
  explicit Client(unsigned port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
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
  explorer::Explorer watched{explorer::Options().every(1).name("run <1>")};
  std::unique_ptr<parts::HttpServer> server;
  unsigned port = 0;
  std::string token;

  Served() {
    watched.watch(*net);
    train(3);
    server =
        std::make_unique<parts::HttpServer>(parts::Runs{watched.session()->run()}, explorer::ServeOptions());
    std::smatch found;
    const std::string url = server->url();
    BOOST_REQUIRE(
        std::regex_match(url, found, std::regex("http://127\\.0\\.0\\.1:(\\d+)/#token=([0-9a-f]{32})")));
    port = static_cast<unsigned>(std::stoul(found[1]));
    token = found[2];
  }
  void train(int steps) {
    for (int step = 0; step < steps; ++step) {
      const at::Tensor loss = net->forward(torch::randn({4, 6})).pow(2).mean();
      loss.backward();
      watched.scalar("loss", loss);
    }
  }
  std::string host() const { return "127.0.0.1:" + std::to_string(port); }
  std::string authorization() const { return "Authorization: Bearer " + token + "\r\n"; }
  Response ask(const std::string& text) const {
    Client client(port);
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
std::string frame(const std::string& text) {
  std::string bytes = "\x81";
  bytes += static_cast<char>(0x80 | text.size());
  return bytes + std::string(4, '\0') + text;
}

/// The next message of a server: its first byte and its payload.
std::pair<int, std::string> next_message(Client& client) {
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

}  // namespace

BOOST_AUTO_TEST_SUITE(server)

BOOST_AUTO_TEST_CASE(answers_those_who_know_the_token_and_nobody_else) {
  const Served served;
  const Response runs = served.get("/api/v1/runs");
  BOOST_TEST(runs.status == 200);
  BOOST_TEST(runs.body.find("\"name\":\"run <1>\"") != std::string::npos);
  BOOST_TEST(runs.body.find("\"modes\":[\"train\"]") != std::string::npos);
  for (const char* const header :
       {"Content-Security-Policy: default-src 'none'; script-src 'self'", "frame-ancestors 'none'",
        "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin"})
    BOOST_TEST(runs.has(header), header);
  BOOST_TEST(!runs.has("Access-Control"));
  BOOST_TEST(served.get("/api/v1/runs", "").status == 403);
  BOOST_TEST(served.get("/api/v1/runs", "Authorization: Bearer " + std::string(32, '0') + "\r\n").status ==
             403);
  BOOST_TEST(served.get("/api/v1/runs", "Authorization: " + served.token + "\r\n").status == 403);
  BOOST_TEST(served.get("/api/v1/runs", "Cookie: token=" + served.token + "\r\n").status == 403);
  BOOST_TEST(served.get("/api/v1/runs?token=" + served.token, "").status == 403);
}

BOOST_AUTO_TEST_CASE(refuses_names_that_are_not_its_own) {
  const Served served;
  const auto as = [&](const std::string& host) {
    return served
        .ask("GET /api/v1/runs HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" +
             served.authorization() + "\r\n")
        .status;
  };
  const std::string port = std::to_string(served.port);
  BOOST_TEST(as("localhost:" + port) == 200);
  BOOST_TEST(as("LOCALHOST:" + port) == 200);
  BOOST_TEST(as("evil.example") == 421);
  BOOST_TEST(as("evil.example:" + port) == 421);
  BOOST_TEST(as("127.0.0.1.evil.example:" + port) == 421);
  BOOST_TEST(as("127.0.0.1:1") == 421);
  BOOST_TEST(served.ask("GET / HTTP/1.0\r\n\r\n").status == 421);
}

BOOST_AUTO_TEST_CASE(says_what_it_does_not_have) {
  const Served served;
  for (const char* const path : {"/api/v1", "/api/v1/none", "/api/v1/runs/r1/graph", "/api/v1/runs/r0/none",
                                 "/api/v1/runs/r0/graph?mode=eval", "/api/v2/runs", "/api/v1/compare",
                                 "/../../etc/passwd", "/app.js/..", "/%2e%2e/etc/passwd"})
    BOOST_TEST(served.get(path).status == 404, path);
  for (const char* const path : {"/api/v1/runs/r0/graph?mode=x", "/api/v1/runs/r0/columns?ids=a",
                                 "/api/v1/runs/r0/columns?since=-1", "/api/v1/runs/r%zz/graph"})
    BOOST_TEST(served.get(path).status == 400, path);
  BOOST_TEST(served
                 .ask("POST /api/v1/runs HTTP/1.1\r\nHost: " + served.host() + "\r\nConnection: close\r\n" +
                      served.authorization() + "Content-Length: 0\r\n\r\n")
                 .status == 405);
  BOOST_TEST(served
                 .ask("PUT /api/v1/runs/r0/control HTTP/1.1\r\nHost: " + served.host() +
                      "\r\nConnection: close\r\n" + served.authorization() + "Content-Length: 2\r\n\r\n{}")
                 .status == 403);
  const std::string large(9000, 'x');
  BOOST_TEST(served.get("/", "X-Large: " + large + "\r\n").status == 413);
}

BOOST_AUTO_TEST_CASE(graphs_have_tags_by_which_they_are_not_sent_twice) {
  Served served;
  const Response first = served.get("/api/v1/runs/r0/graph?mode=train");
  BOOST_TEST(first.status == 200);
  std::smatch tag;
  BOOST_REQUIRE(std::regex_search(first.head, tag, std::regex("ETag: (\\S+)")));
  const Response again = served.get("/api/v1/runs/r0/graph?mode=train",
                                    served.authorization() + "If-None-Match: " + tag[1].str() + "\r\n");
  BOOST_TEST(again.status == 304);
  BOOST_TEST(again.body == "");
  served.train(1);
  BOOST_TEST(served
                 .get("/api/v1/runs/r0/graph?mode=train",
                      served.authorization() + "If-None-Match: " + tag[1].str() + "\r\n")
                 .status == 200);
}

BOOST_AUTO_TEST_CASE(columns_are_what_was_measured_and_only_new_ones_come_again) {
  Served served;
  const auto read = [&](const std::string& query) {
    const Response response = served.get("/api/v1/runs/r0/columns?" + query);
    BOOST_REQUIRE(response.status == 200);
    return response.body;
  };
  const std::string body = read("ids=0,2");
  parts::Bytes bytes(body.data(), body.size());
  BOOST_TEST(bytes.get<std::uint32_t>() == 0x434c5054U);
  BOOST_TEST(bytes.get<std::uint32_t>() == 1U);
  BOOST_TEST(bytes.get<std::uint32_t>() == 3U);
  BOOST_TEST(bytes.get<std::uint32_t>() == 2U);  // series
  BOOST_TEST(bytes.get<std::uint32_t>() == 0U);  // the id of the first
  const auto sequence = bytes.get<std::uint64_t>();
  BOOST_TEST(bytes.get<std::uint32_t>() == (0x80000000U | 3U));
  std::string expected;
  served.watched.session()->run()->each_series([&](const parts::Series& series) {
    if (!expected.empty()) return;
    for (const auto& column : series.columns()) parts::put_column(expected, column);
  });
  BOOST_TEST(bytes.text(expected.size()) == expected);
  const std::string nothing = read("ids=0&since=" + std::to_string(sequence));
  BOOST_TEST(nothing.size() == 16U);
  served.train(1);
  const std::string more = read("ids=0&since=" + std::to_string(sequence));
  parts::Bytes news(more.data(), more.size());
  news.text(16 + 12);
  BOOST_TEST(news.get<std::uint32_t>() == 1U);
  BOOST_TEST(news.get<std::int64_t>() == 3);  // its step
}

BOOST_AUTO_TEST_CASE(viewers_are_told_what_is_new) {
  Served served;
  Client client(served.port);
  BOOST_TEST(served.open_live(client, "http://" + served.host()).find("101") != std::string::npos);
  client.send(frame("{\"token\":\"" + served.token + "\"}"));
  auto [kind, notice] = next_message(client);
  BOOST_TEST(kind == 0x81);
  BOOST_TEST(notice.find("\"run\":\"r0\",\"step\":2") != std::string::npos);
  served.train(1);
  for (int i = 0; i < 20 && notice.find("\"step\":3") == std::string::npos; ++i)
    notice = next_message(client).second;
  BOOST_TEST(notice.find("\"step\":3") != std::string::npos);
  BOOST_TEST(notice.find("\"state\":\"running\"") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(viewers_without_the_token_or_from_elsewhere_are_turned_away) {
  const Served served;
  Client stranger(served.port), guesser(served.port), silent(served.port);
  BOOST_TEST(served.open_live(stranger, "http://evil.example").find("403") != std::string::npos);
  BOOST_TEST(served.open_live(guesser, "http://" + served.host()).find("101") != std::string::npos);
  guesser.send(frame("{\"token\":\"" + std::string(32, '0') + "\"}"));
  const auto [kind, reason] = next_message(guesser);
  BOOST_TEST(kind == 0x88);
  BOOST_REQUIRE(reason.size() >= 2U);
  BOOST_TEST((static_cast<unsigned char>(reason[0]) * 256 + static_cast<unsigned char>(reason[1])) == 4403);
  // One that says nothing hears nothing: the server goes while it waits.
  BOOST_TEST(served.open_live(silent, "http://" + served.host()).find("101") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(many_viewers_of_whom_some_never_read_do_no_harm) {
  Served served;
  std::vector<std::unique_ptr<Client>> viewers;
  for (int i = 0; i < 200; ++i) {
    viewers.push_back(std::make_unique<Client>(served.port));
    BOOST_REQUIRE(served.open_live(*viewers.back(), "http://" + served.host()).find("101") !=
                  std::string::npos);
    viewers.back()->send(frame("{\"token\":\"" + served.token + "\"}"));
  }
  served.train(5);
  for (int i = 0; i < 200; i += 2)
    BOOST_REQUIRE(next_message(*viewers[static_cast<std::size_t>(i)]).first == 0x81);
  BOOST_TEST(served.get("/api/v1/runs").status == 200);
}

BOOST_AUTO_TEST_CASE(nonsense_is_survived) {
  const Served served;
  std::mt19937 random(7);
  const std::string good = "GET /api/v1/runs/r0/columns?ids=0,1&since=0 HTTP/1.1\r\nHost: " + served.host() +
                           "\r\n" + served.authorization() + "\r\n";
  for (int i = 0; i < 200; ++i) {
    std::string bad = good;
    for (unsigned changes = random() % 8; changes-- > 0;)
      bad[random() % bad.size()] = static_cast<char>(random());
    if (i % 5 == 0) bad.resize(random() % bad.size());
    Client client(served.port);
    client.send(bad);
    if (i % 3 == 0) client.receive([](const std::string& so_far) { return !so_far.empty(); });
  }
  BOOST_TEST(served.get("/api/v1/runs").status == 200);
}

BOOST_AUTO_TEST_CASE(a_server_may_end_while_it_is_asked) {
  for (int i = 0; i < 5; ++i) {
    Served served;
    std::atomic<bool> done{false};
    std::thread asker([&] {
      while (!done) served.get("/api/v1/runs/r0/series");
    });
    served.train(3);
    done = true;
    served.server.reset();
    asker.join();
    Client late(served.port);
    BOOST_TEST(!late.connected());
  }
}

BOOST_AUTO_TEST_CASE(programs_that_are_started_do_not_get_its_sockets) {
  const Served served;
  Client client(served.port);
  BOOST_TEST(served.open_live(client, "http://" + served.host()).find("101") != std::string::npos);
  int sockets = 0;
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    ++sockets;
    BOOST_TEST((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  }
  BOOST_TEST(sockets >= 3);  // the listening one, and both ends of the client's
}

BOOST_AUTO_TEST_CASE(two_servers_take_two_ports_and_a_port_that_is_taken_is_an_error) {
  const Served one, two;
  BOOST_TEST(one.port != two.port);
  BOOST_TEST(one.token != two.token);
  const parts::Runs runs{one.watched.session()->run()};
  BOOST_CHECK_EXCEPTION(
      parts::HttpServer(runs, explorer::ServeOptions().port(one.port)), c10::Error,
      says({"cannot listen on 127.0.0.1:" + std::to_string(one.port), "ServeOptions::port"}));
  BOOST_CHECK_EXCEPTION(parts::HttpServer(runs, explorer::ServeOptions().port(70000)), c10::ValueError,
                        says({"70000"}));
  BOOST_CHECK_EXCEPTION(parts::HttpServer(runs, explorer::ServeOptions().address("nowhere")), c10::ValueError,
                        says({"nowhere", "127.0.0.1"}));
  BOOST_CHECK_EXCEPTION(parts::HttpServer(runs, explorer::ServeOptions().token("short")), c10::ValueError,
                        says({"at least 16"}));
  BOOST_CHECK_EXCEPTION(explorer::Server(std::vector<std::string>{}), c10::ValueError,
                        says({"nothing to show"}));
}

BOOST_AUTO_TEST_SUITE_END()
