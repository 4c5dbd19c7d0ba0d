// The server among clients that ask much, ask nonsense, or do not listen; and its end.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <atomic>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "client.hpp"

BOOST_AUTO_TEST_SUITE(robust)

using namespace support;

namespace {

/// Memory of this process that is in use, in bytes.
std::int64_t resident() {
  std::ifstream in("/proc/self/status");
  std::string word;
  while (in >> word) {
    if (word != "VmRSS:") continue;
    std::int64_t kilobytes = 0;
    in >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

/// Sanitizers keep what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t most_memory = std::int64_t{1} << 30;
#else
constexpr std::int64_t most_memory = std::int64_t{64} << 20;
#endif

bool is_answered(const Served& served) {
  return served.get("/api/v1/runs").status == 200;
}

std::string changed(std::string text, std::mt19937& random, unsigned most) {
  for (unsigned changes = random() % most; changes-- > 0;)
    text[random() % text.size()] = static_cast<char>(random());
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(many_viewers_do_no_harm) {
  Served served;
  std::vector<std::unique_ptr<Client>> viewers;
  for (int i = 0; i < 200; ++i) {
    viewers.push_back(std::make_unique<Client>(served.port));
    BOOST_REQUIRE(served.open_live(*viewers.back(), "http://" + served.host()).find("101") !=
                  std::string::npos);
    viewers.back()->send(frame("{\"token\":\"" + served.token + "\"}"));
  }
  const std::int64_t before = resident();
  served.train(300);  // nobody reads meanwhile
  BOOST_TEST(is_answered(served));
  BOOST_TEST(resident() - before < most_memory);
  for (int i = 0; i < 200; i += 2) {  // half of them never do
    Client& viewer = *viewers[static_cast<std::size_t>(i)];
    std::string notice;
    int notices = 0;
    for (; notices < 100 && notice.find("\"step\":302") == std::string::npos; ++notices)
      notice = next_message(viewer).second;
    BOOST_REQUIRE(notice.find("\"step\":302") != std::string::npos);
    BOOST_TEST(notices < 100);  // not one for each of more than 5000 changes
  }
}

/// Clients whose answers nobody takes: the server stops reading from them, and forgets none of the others.
BOOST_AUTO_TEST_CASE(clients_that_ask_and_never_read_do_no_harm) {
  Served served;
  served.train(250);
  const std::string request = "GET /api/v1/runs/r0/columns HTTP/1.1\r\nHost: " + served.host() + "\r\n" +
                              served.authorization() + "\r\n";
  const std::size_t size = served.get("/api/v1/runs/r0/columns").body.size();
  constexpr int clients = 20, requests = 100;
  const std::int64_t all = static_cast<std::int64_t>(size) * clients * requests;
  BOOST_REQUIRE(all > std::int64_t{256} << 20);
  const std::int64_t before = resident();
  std::vector<std::unique_ptr<Client>> stalled;
  for (int i = 0; i < clients; ++i) {
    stalled.push_back(std::make_unique<Client>(served.port));
    const timeval patience{0, 200000};  // the server reads no more: what is left stays here
    ::setsockopt(stalled.back()->descriptor(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    for (int k = 0; k < requests; ++k) stalled.back()->send(request);
  }
  served.train(20);
  BOOST_TEST(is_answered(served));
  BOOST_TEST(resident() - before < most_memory);
  // What was asked first is still answered, whole.
  std::string body;
  BOOST_TEST(stalled.front()->receive_exactly(size, body) == size);
}

BOOST_AUTO_TEST_CASE(nonsense_is_survived) {
  const Served served(explorer::ServeOptions().control(true));
  std::mt19937 random(7);
  const std::string good = "GET /api/v1/runs/r0/columns?ids=0,1&since=0 HTTP/1.1\r\nHost: " + served.host() +
                           "\r\n" + served.authorization() + "\r\n";
  const std::string put = "PUT /api/v1/runs/r0/control HTTP/1.1\r\nHost: " + served.host() + "\r\n" +
                          served.origin() + served.authorization() +
                          "Content-Length: 28\r\n\r\n{\"every\": 10,\"paused\": false}";
  for (int i = 0; i < 600; ++i) {
    std::string bad = changed(i % 2 == 0 ? good : put, random, 8);
    if (i % 5 == 0) bad.resize(random() % bad.size());
    Client client(served.port);
    client.send(bad);
    if (i % 3 == 0) {
      const timeval patience{0, 100000};  // where half a request was sent, there is no answer
      ::setsockopt(client.descriptor(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
      client.receive([](const std::string& so_far) { return !so_far.empty(); });
    }
  }
  BOOST_TEST(is_answered(served));
}

BOOST_AUTO_TEST_CASE(nonsense_in_a_socket_is_survived) {
  const Served served;
  std::mt19937 random(11);
  const std::string good = frame("{\"token\":\"" + served.token + "\"}");
  for (int i = 0; i < 200; ++i) {
    Client client(served.port);
    BOOST_REQUIRE(served.open_live(client, "http://" + served.host()).find("101") != std::string::npos);
    if (i % 2 == 0) client.send(good);  // also from those who know the token
    std::string bad = changed(good + good, random, 12);
    if (i % 7 == 0) bad = std::string(20000, static_cast<char>(random()));
    client.send(bad);
    if (i % 4 == 0) next_message(client);
  }
  BOOST_TEST(is_answered(served));
}

BOOST_AUTO_TEST_CASE(a_server_may_end_while_it_is_asked) {
  for (int i = 0; i < 5; ++i) {
    Served served;
    std::atomic<bool> done{false};
    std::thread asker([&] {
      while (!done) served.get("/api/v1/runs/r0/series");
    });
    served.train(3);
    // One is in the middle of an answer, one of a request, one of a handshake, and one listens.
    Client answer(served.port), request(served.port), handshake(served.port), viewer(served.port);
    answer.send("GET /app.js HTTP/1.1\r\nHost: " + served.host() + "\r\n\r\n");
    std::string some;
    BOOST_TEST(answer.receive_exactly(100, some) == 100U);
    request.send("GET / HTTP/1.1\r\nHost");
    handshake.send("GET /api/v1/live HTTP/1.1\r\nUpgrade: websocket\r\n");
    served.open_live(viewer, "http://" + served.host());
    viewer.send(frame("{\"token\":\"" + served.token + "\"}"));
    done = true;
    served.server.reset();
    asker.join();
    Client late(served.port);
    BOOST_TEST(!late.connected());
    BOOST_TEST(request.receive_all() == "");
  }
}

BOOST_AUTO_TEST_CASE(of_too_many_that_say_nothing_the_first_are_closed) {
  const Served served;
  std::vector<std::unique_ptr<Client>> held;
  for (int i = 0; i < 300; ++i) held.push_back(std::make_unique<Client>(served.port));
  Client one_more(served.port);
  one_more.send("GET / HTTP/1.1\r\n\r\n");
  BOOST_TEST(one_more.receive_all().find("421") != std::string::npos);  // it named no host
  BOOST_TEST(held.front()->receive_all() == "");
  held.clear();
  for (int i = 0; i < 50 && !is_answered(served); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  BOOST_TEST(is_answered(served));
}

BOOST_AUTO_TEST_SUITE_END()
