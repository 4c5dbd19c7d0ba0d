// The memory that readers share: it begins small, grows when they would miss something, and stays within what
// the system and memory cgroups leave.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include <torchtap/views/frames/detail/memory_left.hpp>

#include "transport.hpp"

using namespace torchtap_test;
namespace parts = stream::detail;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// A ring without a publisher, its one reader, and what was written.
struct Ring {
  parts::Arena arena;
  parts::Descriptor control = parts::make_memory("control", parts::kPage);
  parts::ArenaView view;
  std::uint64_t written = 0;
  std::mt19937 random;

  Ring(std::uint64_t capacity, std::uint64_t most, unsigned seed)
      : arena(capacity, most), view(arena.memory(), arena.bytes(), control, 0, 0), random(seed) {}

  /// Writes the next frame, whose numbers are all its sample, unless it would overwrite `position`.
  bool write(std::uint64_t position) {
    const std::vector<std::uint64_t> numbers(1 + random() % 180, written);
    Frame frame;
    frame.sample = written;
    frame.readers = 1;
    frame.dtype = 4;
    frame.dims = 1;
    frame.sizes[0] = static_cast<std::int64_t>(numbers.size());
    frame.data_bytes = numbers.size() * 8;
    const std::uint64_t bytes = stream::frame_bytes(frame);
    if (arena.end_after(bytes) > std::min(arena.limit_for(position), arena.limit_for(arena.head())))
      return false;
    auto* const room = static_cast<char*>(arena.reserve(bytes));
    stream::write_header(frame, room);
    std::memcpy(room + stream::header_bytes(frame), numbers.data(), frame.data_bytes);
    arena.commit(room, 1);
    ++written;
    return true;
  }
  void grow(std::uint64_t needed) {
    const std::uint64_t to = arena.larger(random() % 3000);
    arena.prepare(to);
    arena.grow(to, needed);
  }
  /// The sample of the next frame, which has to be as it was written; nothing if there is none.
  std::optional<std::uint64_t> read() {
    const void* const bytes = view.next();
    if (bytes == nullptr) return std::nullopt;
    const Frame frame = stream::read_frame(bytes, view.length());
    const auto* const numbers = static_cast<const std::uint64_t*>(frame.data);
    for (std::size_t i = 0; i < frame.data_bytes / 8; ++i) BOOST_TEST_REQUIRE(numbers[i] == frame.sample);
    BOOST_TEST_REQUIRE(view.release());
    return frame.sample;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_ring_may_grow_at_any_moment) {
  std::size_t epochs = 0;
  for (unsigned round = 0; round < 100; ++round) {
    Ring ring(8192, 1 << 19, round);
    const parts::Mapping page(ring.control, parts::kPage, /*writable=*/true);
    const auto* const control = reinterpret_cast<const parts::Control*>(page.get());
    std::uint64_t next = 0;
    for (int step = 0; step < 600; ++step) {
      if (ring.random() % 60 == 0 && ring.arena.capacity() < ring.arena.most()) {
        ring.grow(control->cursor.load());
        ++epochs;
      }
      const bool full = !ring.write(control->cursor.load());
      if (!full && ring.random() % 9 < 5) continue;
      const auto sample = ring.read();
      BOOST_TEST_REQUIRE((sample.has_value() && *sample == next++));
    }
    while (const auto sample = ring.read()) BOOST_TEST_REQUIRE(*sample == next++);
    BOOST_TEST(next == ring.written);
    BOOST_TEST(ring.view.missed() == 0U);
  }
  BOOST_TEST(epochs > 300U);
}

BOOST_AUTO_TEST_CASE(a_ring_that_grows_and_overwrites_is_counted_exactly) {
  for (unsigned round = 0; round < 100; ++round) {
    Ring ring(8192, 1 << 17, round);
    std::uint64_t next = 0;
    for (int step = 0; step < 600; ++step) {
      if (ring.random() % 100 == 0 && ring.arena.capacity() < ring.arena.most()) ring.grow(UINT64_MAX);
      BOOST_TEST_REQUIRE(ring.write(UINT64_MAX - (1 << 20)));  // in nobody's way
      if (ring.random() % 3 != 0) continue;
      for (std::uint64_t more = ring.random() % 4; more > 0; --more) {
        const auto sample = ring.read();
        if (!sample.has_value()) break;
        BOOST_TEST_REQUIRE(*sample >= next);
        next = *sample + 1;
      }
    }
    while (ring.read().has_value()) continue;
    BOOST_TEST(ring.view.received() + ring.view.missed() == ring.written);
    BOOST_TEST(ring.view.missed() > 0U);
  }
}

BOOST_AUTO_TEST_CASE(the_memory_begins_small_and_grows_before_a_reader_misses_anything) {
  for (const WhenFull when_full : {WhenFull::wait, WhenFull::skip}) {
    const Rendezvous here;
    auto server = std::make_unique<Server>("test", here.options(64 * kMiB));
    BOOST_TEST(server->memory() == 0U);
    const auto source = server->add({"a", {}, "", Kind::other});
    Client client = here.reader(Subscription().when_full(when_full));
    BOOST_TEST(server->memory() == 4 * kMiB);
    for (std::uint64_t i = 0; i < 50; ++i) publish(*server, *source, i, kMiB / 8);
    BOOST_TEST(server->memory() == 64 * kMiB);
    for (std::uint64_t i = 0; i < 300; ++i) {  // around the ring, some times
      const auto frame = client.next(20s);
      BOOST_TEST_REQUIRE(frame.has_value());
      BOOST_TEST_REQUIRE(frame->sample == i);
      BOOST_TEST_REQUIRE(intact(*frame));
      client.release();
      if (i + 50 < 300) publish(*server, *source, i + 50, kMiB / 8 - i * 400);
    }
    BOOST_TEST(client.missed() == 0U);
    BOOST_TEST(!client.demoted());
    BOOST_TEST(server->readers()[0].offered == 300U);
    server.reset();
    BOOST_TEST(!client.next(20s).has_value());
    BOOST_TEST(client.broken() == "");
  }
}

BOOST_AUTO_TEST_CASE(the_memory_grows_for_a_frame_that_needs_it_and_is_given_back) {
  const Rendezvous here;
  Server server("test", here.options(256 * kMiB));
  const auto source = server.add({"a", {}, "", Kind::other});
  {
    Client client = here.reader();
    publish(server, *source, 0, 10 * kMiB / 8);
    const auto frame = client.next(20s);
    BOOST_TEST_REQUIRE(frame.has_value());
    BOOST_TEST(intact(*frame));
    BOOST_TEST(frame->data_bytes == 10 * kMiB);
    BOOST_TEST(server.memory() < 64 * kMiB);
  }
  while (server.memory() != 0) std::this_thread::sleep_for(1ms);
  Client again = here.reader();
  BOOST_TEST(server.memory() == 4 * kMiB);
}

BOOST_AUTO_TEST_CASE(threads_publish_while_the_memory_grows) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options(128 * kMiB));
  Client client = here.reader(Subscription().when_full(WhenFull::wait));
  std::vector<std::shared_ptr<SourceState>> sources;
  for (int i = 0; i < 4; ++i) sources.push_back(server->add({std::to_string(i), {}, "", Kind::other}));
  std::vector<std::thread> threads;
  for (auto& source : sources) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 60; ++i) publish(*server, *source, i, 1 + i * 2000);
    });
  }
  for (auto& thread : threads) thread.join();
  server.reset();
  std::map<std::string, std::uint64_t> next;
  while (auto frame = client.next(20s)) {
    BOOST_TEST_REQUIRE(intact(*frame));
    BOOST_TEST_REQUIRE(frame->sample == next[std::string(frame->path)]++);
  }
  for (const auto& entry : next) BOOST_TEST(entry.second == 60U);
  BOOST_TEST(client.received() == 240U);
}

// As Linux shows them: trees of files in place of /proc and /sys.
BOOST_AUTO_TEST_CASE(memory_cgroups_say_how_much_is_left) {
  using torchtap::views::frames::detail::memory_left;
  const TemporaryDirectory tree;
  const auto put = [&](const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(tree / path).parent_path());
    std::ofstream(tree / path) << text;
  };
  BOOST_TEST(memory_left(tree.path()).bytes == UINT64_MAX);
  put("proc/meminfo", "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:    5000 kB\n");
  BOOST_TEST(memory_left(tree.path()).bytes == 5000U << 10);
  BOOST_TEST(memory_left(tree.path()).of == "the system");

  // Version 1: the group, which does not limit, lies in one that does.
  put("proc/self/cgroup", "9:cpuset:/x\n4:memory:/outer/inner\n1:name=systemd:/init\n0::/y\n");
  put("proc/self/mountinfo",
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n");
  put("sys/fs/cgroup/memory/outer/inner/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/outer/inner/memory.usage_in_bytes", "1000000\n");
  put("sys/fs/cgroup/memory/outer/memory.limit_in_bytes", "4000000\n");
  put("sys/fs/cgroup/memory/outer/memory.usage_in_bytes", "3000000\n");
  put("sys/fs/cgroup/memory/outer/memory.stat",
      "cache 700000\ninactive_file 1\ntotal_inactive_file 500000\n");
  BOOST_TEST(memory_left(tree.path()).bytes == 1500000U);
  BOOST_TEST(memory_left(tree.path()).of.find("memory/outer") != std::string::npos);

  // A container without a namespace of its own sees its part of the hierarchy alone.
  put("proc/self/mountinfo", "35 31 0:32 /outer /sys/cg rw - cgroup cgroup rw,memory\n");
  put("sys/cg/inner/memory.limit_in_bytes", "300000\n");
  put("sys/cg/inner/memory.usage_in_bytes", "400000\n");  // for a moment
  BOOST_TEST(memory_left(tree.path()).bytes == 0U);

  // Version 2.
  put("proc/self/cgroup", "0::/a/b\n");
  put("proc/self/mountinfo", "41 31 0:38 / /sys/two rw - cgroup2 cgroup2 rw\n");
  put("sys/two/a/b/memory.max", "max\n");
  put("sys/two/a/b/memory.current", "7\n");
  BOOST_TEST(memory_left(tree.path()).bytes == 5000U << 10);
  put("sys/two/a/memory.max", "2000000\n");
  put("sys/two/a/memory.current", "1900000\n");
  put("sys/two/a/memory.stat", "anon 5\ninactive_file 40000\n");
  BOOST_TEST(memory_left(tree.path()).bytes == 140000U);
}
