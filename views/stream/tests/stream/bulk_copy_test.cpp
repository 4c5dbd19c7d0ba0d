// Copies past the caches: the bytes, nothing beside them, and in time for readers.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <torchtap/views/frames/bulk_copy.hpp>

#include "transport.hpp"

using namespace torchtap_test;

BOOST_AUTO_TEST_CASE(bulk_copies_are_exact_at_any_length_and_alignment) {
  constexpr std::size_t kMega = std::size_t{1} << 20;
  constexpr std::size_t kMost = 5 * kMega + 17;
  constexpr char kUntouched = 0x55;
  std::vector<char> source(kMost + 64);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 2654435761U >> 13);
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(64, 6 * kMega), &std::free);
  char* const base = static_cast<char*>(memory.get());
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, 2 * kMega - 1, 2 * kMega,
                                  2 * kMega + 1, 2 * kMega + 63, 3 * kMega, kMost}) {
    for (const std::size_t to : {64, 128, 65, 72}) {
      for (const std::size_t from : {0, 1, 8}) {
        std::memset(base, kUntouched, to + bytes + 64);
        torchtap::views::frames::bulk_copy(base + to, source.data() + from, bytes);
        BOOST_TEST(std::memcmp(base + to, source.data() + from, bytes) == 0,
                   bytes << ' ' << to << ' ' << from);
        BOOST_TEST(std::count(base, base + to, kUntouched) == static_cast<std::ptrdiff_t>(to));
        BOOST_TEST(std::count(base + to + bytes, base + to + bytes + 64, kUntouched) == 64);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(no_large_frame_is_torn) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options(8 << 20));
  const auto source = server->add({"a", {}, "", Kind::other});
  Client skips = here.reader(Subscription().when_full(WhenFull::skip));
  Client waits = here.reader(Subscription().when_full(WhenFull::wait));
  constexpr std::uint64_t kFrames = 200;
  std::thread forward([&] {
    for (std::uint64_t i = 0; i < kFrames; ++i) publish(*server, *source, i, (300 << 10) + i);
    server.reset();
  });
  std::uint64_t torn = 0;
  std::thread looks([&] {
    while (auto frame = skips.next(60s)) torn += intact(*frame) ? 0 : 1;
  });
  std::uint64_t wrong = 0;
  while (auto frame = waits.next(60s)) wrong += intact(*frame) ? 0 : 1;
  forward.join();
  looks.join();
  BOOST_TEST(torn == 0U);
  BOOST_TEST(wrong == 0U);
  BOOST_TEST(waits.received() == kFrames);
  BOOST_TEST(skips.received() + skips.missed() == kFrames);
}
