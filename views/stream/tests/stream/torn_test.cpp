// Readers whose frames are overwritten while they read. Run under ThreadSanitizer and AddressSanitizer, too.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "transport.hpp"

using namespace torchtap_test;

// A million by hand: TORCHTAP_TEST_FRAMES=1000000.
BOOST_AUTO_TEST_CASE(no_frame_is_torn) {
  const char* const asked = std::getenv("TORCHTAP_TEST_FRAMES");
  const std::uint64_t count = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 100000;
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options(1 << 16));
  std::vector<std::shared_ptr<SourceState>> sources;
  for (int i = 0; i < 2; ++i) sources.push_back(server->add({std::to_string(i), {}, "", Kind::other}));
  constexpr int kReaders = 3;
  std::vector<Client> clients;
  for (int i = 0; i < kReaders; ++i) clients.push_back(here.reader(Subscription().when_full(WhenFull::skip)));
  std::vector<std::thread> forwards;
  for (auto& source : sources) {
    forwards.emplace_back([&server, &source, count] {
      for (std::uint64_t i = 0; i < count / 2; ++i) publish(*server, *source, i, 1 + i % 3500);
    });
  }
  std::atomic<std::uint64_t> torn{0};
  std::vector<std::thread> readers;
  for (auto& client : clients) {
    readers.emplace_back([&client, &torn] {
      while (auto frame = client.next(60s)) torn += intact(*frame) ? 0 : 1;
    });
  }
  for (auto& forward : forwards) forward.join();
  server.reset();
  for (auto& reader : readers) reader.join();
  BOOST_TEST(torn.load() == 0U);
  for (const auto& client : clients) {
    BOOST_TEST(client.received() + client.missed() == count / 2 * 2);
    BOOST_TEST(client.received() > 0U);
    BOOST_TEST(client.missed() > 0U);
    BOOST_TEST_MESSAGE("received " << client.received() << ", missed " << client.missed());
  }
}

// A frame that lies in the shared memory may be overwritten when its reader is demoted: `whole` tells.
BOOST_AUTO_TEST_CASE(no_frame_that_is_called_whole_is_torn) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options(1 << 16, 0ms));
  const auto source = server->add({"a", {}, "", Kind::other});
  Client client = here.reader(Subscription().when_full(WhenFull::wait));
  std::thread forward([&] {
    for (std::uint64_t i = 0; i < 50000; ++i) publish(*server, *source, i, 1 + i % 3500);
    server.reset();
  });
  std::uint64_t torn = 0;
  while (auto frame = client.next(60s)) {
    const bool same = intact(*frame);
    if (client.whole() && !same) ++torn;
  }
  forward.join();
  BOOST_TEST(torn == 0U);
  BOOST_TEST(client.received() + client.missed() == 50000U);
}
