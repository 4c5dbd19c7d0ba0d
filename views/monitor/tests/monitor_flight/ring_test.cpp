// The ring of the last inputs: what is in it while the process runs, and after it was killed.
#include <ATen/Parallel.h>
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include <torchtap/views/frames/arena.hpp>

#include "flight.hpp"

namespace torchtap_test {
namespace {

using parts::FlightRecorder;
using parts::KeptForward;

/// Inputs that say which forward they are of.
at::Tensor numbered(std::int64_t forward, std::int64_t size) {
  return at::full({size}, forward, at::kLong);
}
bool is_numbered(const KeptForward& forward) {
  for (const at::Tensor& input : forward.inputs)
    if (!input.eq(forward.number).all().item<bool>()) return false;
  return true;
}

BOOST_AUTO_TEST_SUITE(monitor_ring)

BOOST_AUTO_TEST_CASE(what_was_kept_is_what_was_given) {
  const Place place;
  FlightRecorder ring(place.rings, 1 << 20, place.incidents, "model");
  at::manual_seed(7);
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  std::vector<at::Tensor> inputs = {at::randn({2, 3}),
                                    at::arange(3).eq(1),
                                    at::randn({5}).to(at::kHalf),
                                    at::randn({5}).to(at::kBFloat16),
                                    at::arange(6, at::kInt),
                                    at::randn({4, 6}).t(),
                                    at::randn({8, 8}).slice(0, 1, 7, 2).slice(1, 2, 5),
                                    at::randn({3, 1}).expand({3, 4}),
                                    at::conj(at::randn({3}, at::kComplexFloat)),
                                    at::empty({0, 3}),
                                    at::scalar_tensor(2.5),
                                    at::Tensor(),
                                    at::randn({2, 2}).to_sparse(),
                                    at::empty({1, 1, 1, 1, 1, 1, 1, 1, 1})};
  BOOST_TEST(ring.begin(3, Given(inputs), true));
  {
    const at::NoGradGuard no_grad;
    BOOST_TEST(ring.begin(4, Given({}), false));
  }
  ring.end(3, {0xfedcba9876543210, 2, 1, 99, 1.5, 2.5});

  const auto forwards = ring.forwards();
  BOOST_TEST_REQUIRE(forwards.size() == 2U);
  const KeptForward& first = forwards[0];
  BOOST_TEST(first.number == 3);
  BOOST_TEST((first.training && first.grad && !first.inference));
  BOOST_TEST(first.threads == at::get_num_threads());
  BOOST_TEST(first.random_state.numel() == state.numel());
  BOOST_TEST((first.returned && first.outcome.digest == 0xfedcba9876543210 && first.outcome.nan == 2 &&
              first.outcome.inf == 1 && first.outcome.nanoseconds == 99 && first.outcome.sum == 1.5));
  BOOST_TEST_REQUIRE(first.inputs.size() == inputs.size());
  for (std::size_t i = 0; i < 11; ++i) {
    BOOST_TEST_CONTEXT(i) {
      BOOST_TEST_REQUIRE(first.inputs[i].defined());
      BOOST_TEST(first.inputs[i].scalar_type() == inputs[i].scalar_type());
      BOOST_TEST(first.inputs[i].equal(inputs[i]));
      const bool contiguous = inputs[i].is_contiguous();
      BOOST_TEST(
          (first.strides[i] == (contiguous ? std::vector<std::int64_t>() : inputs[i].strides().vec())));
    }
  }
  BOOST_TEST(first.why_not[11] == "undefined");
  BOOST_TEST(first.why_not[12] == "sparse");
  BOOST_TEST(first.why_not[13] == "of more than 8 dimensions");
  BOOST_TEST(
      (!forwards[1].returned && !forwards[1].grad && !forwards[1].training && forwards[1].inputs.empty()));
}

BOOST_AUTO_TEST_CASE(the_random_state_is_that_of_the_generator) {
  const Place place;
  FlightRecorder ring(place.rings, 1 << 20, place.incidents, "model");
  at::manual_seed(11);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (int i = 0; i < 6; ++i) {
    const at::Tensor state = generator.get_state();
    BOOST_TEST_REQUIRE(ring.begin(i, Given({}), false));
    const at::Tensor kept = ring.forwards().back().random_state;
    const at::Tensor next = at::randn({3}), other = at::rand({5});
    generator.set_state(kept);
    BOOST_TEST(next.equal(at::randn({3})));
    BOOST_TEST(other.equal(at::rand({5})));
    generator.set_state(state);
    at::rand({311 * i + 1});
    at::normal(0.0, 1.0, {3}, generator, at::TensorOptions(at::kDouble));
  }
}

BOOST_AUTO_TEST_CASE(the_newest_stay_and_the_oldest_go) {
  const Place place;
  FlightRecorder ring(place.rings, 1 << 18, place.incidents, "model");
  std::mt19937 random(1);
  for (std::int64_t i = 0; i < 3000; ++i) {
    BOOST_TEST_REQUIRE(ring.begin(i, Given({numbered(i, random() % 3000), numbered(i, 7)}), false));
    if (i % 3 != 0) ring.end(i, {static_cast<std::uint64_t>(i)});
    if (i % 100 != 0) continue;
    const auto forwards = ring.forwards();
    BOOST_TEST_REQUIRE(!forwards.empty());
    BOOST_TEST_REQUIRE(forwards.back().number == i);
    BOOST_TEST((i < 100 || forwards.size() >= 8U));
    for (std::size_t j = 0; j < forwards.size(); ++j) {
      const KeptForward& forward = forwards[j];
      BOOST_TEST_REQUIRE(forward.number == i + 1 - static_cast<std::int64_t>(forwards.size() - j));
      BOOST_TEST_REQUIRE(is_numbered(forward));
      BOOST_TEST_REQUIRE(forward.returned == (forward.number % 3 != 0));
    }
  }
  BOOST_TEST(ring.skipped() == 0);
}

BOOST_AUTO_TEST_CASE(a_forward_larger_than_half_of_the_ring_is_counted) {
  const Place place;
  FlightRecorder ring(place.rings, 1 << 16, place.incidents, "model");
  BOOST_TEST(ring.begin(0, Given({numbered(0, 10)}), false));
  BOOST_TEST(!ring.begin(1, Given({numbered(1, 5000)}), false));
  ring.end(1, {});
  BOOST_TEST(ring.begin(2, Given({numbered(2, 10)}), false));
  BOOST_TEST(ring.skipped() == 1);
  const auto forwards = ring.forwards();
  BOOST_TEST_REQUIRE(forwards.size() == 2U);
  BOOST_TEST((forwards[0].number == 0 && forwards[1].number == 2));
}

BOOST_AUTO_TEST_CASE(without_inputs_none_of_their_bytes_are_in_the_file) {
  const Place place;
  const std::string marker = "a marker that is nowhere else";
  const at::Tensor text = at::empty({static_cast<std::int64_t>(marker.size())}, at::kByte);
  std::memcpy(text.data_ptr(), marker.data(), marker.size());
  for (const bool kept : {true, false}) {
    FlightRecorder ring(place.rings, 1 << 16, place.incidents, "model", kept);
    BOOST_TEST(ring.begin(0, Given({text}), false));
    BOOST_TEST(contains(bytes_of(ring.file()), marker) == kept);
    BOOST_TEST(ring.forwards().at(0).inputs.at(0).defined() == kept);
  }
}

BOOST_AUTO_TEST_CASE(the_file_is_private_and_goes_with_the_recorder) {
  const Place place;
  std::string file;
  {
    FlightRecorder ring(place.rings, 1 << 16, place.incidents, "model");
    file = ring.file();
    struct stat status {};
    BOOST_TEST_REQUIRE(::stat(file.c_str(), &status) == 0);
    BOOST_TEST((status.st_mode & 0777) == 0600);
    BOOST_TEST_REQUIRE(::stat(place.rings.c_str(), &status) == 0);
    BOOST_TEST((status.st_mode & 0777) == 0700);
    // A child has nothing of it, and takes nothing away.
    BOOST_TEST(status_of([&] {
                 if (ring.begin(1, Given({}), false) || !ring.forwards().empty()) ::_exit(1);
                 ring.~FlightRecorder();
               }) == 0);
    BOOST_TEST(fs::exists(file));
    BOOST_TEST(monitor::recover_incidents(place.incidents).empty());  // its process lives
    BOOST_TEST(fs::exists(file));
  }
  BOOST_TEST(!fs::exists(file));
  BOOST_TEST(fs::is_empty(place.rings));
  BOOST_TEST(fs::is_empty(place.incidents));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_made_is_an_error) {
  const Place place;
  const auto make = [&](std::int64_t bytes) { FlightRecorder(place.rings, bytes, place.incidents, "model"); };
  BOOST_CHECK_EXCEPTION(make(100), c10::ValueError, says({"64 KiB to 16 GiB", "100"}));
  // A disk that is full, and not a signal later: here, files may not be longer.
  BOOST_TEST(status_of([&] {
               const rlimit least{1 << 20, 1 << 20};
               ::signal(SIGXFSZ, SIG_IGN);
               ::setrlimit(RLIMIT_FSIZE, &least);
               const std::string error = error_of([&] { make(8 << 20); });
               ::_exit(contains(error, "cannot take") && fs::is_empty(place.rings) ? 0 : 1);
             }) == 0);
  fs::create_directory_symlink(place.rings, place.directory / "link");
  BOOST_CHECK_EXCEPTION(FlightRecorder(place.directory / "link", 1 << 16, place.incidents, "m"),
                        c10::ValueError, says({"is a symbolic link"}));
  BOOST_CHECK_EXCEPTION(FlightRecorder(place.rings, 1 << 16, place.directory / "link", "m"), c10::ValueError,
                        says({"is a symbolic link"}));
  BOOST_TEST(fs::is_empty(place.rings));
}

BOOST_AUTO_TEST_CASE(threads_keep_their_forwards_apart) {
  const Place place;
  FlightRecorder ring(place.rings, 1 << 20, place.incidents, "model");
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      for (int j = 0; j < 400; ++j) {
        const std::int64_t number = next++;
        if (!ring.begin(number, Given({numbered(number, random() % 5000)}), false)) continue;
        ring.end(number, {static_cast<std::uint64_t>(number)});
      }
    });
  }
  std::thread reader([&] {
    while (!stop) {
      for (const KeptForward& forward : ring.forwards())
        if (!is_numbered(forward)) BOOST_ERROR("a forward has the inputs of another one");
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  reader.join();
  const auto forwards = ring.forwards();
  BOOST_TEST(forwards.size() > 10U);
  for (const KeptForward& forward : forwards) {
    BOOST_TEST(is_numbered(forward));
    BOOST_TEST((forward.returned && forward.outcome.digest == static_cast<std::uint64_t>(forward.number)));
  }
}

/// A child that records forwards until it dies says through a pipe which it has finished.
struct Killed {
  std::int64_t begun = -1, finished = -1;
};
Killed killed(const Place& place, const std::function<void(pid_t)>& kill,
              const std::function<void(std::int64_t)>& in_child, const std::string& rings) {
  int pipe[2];
  BOOST_TEST_REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe[0]);
    // In place of Boost.Test's, which would go on with the tests.
    for (const int signal : {SIGABRT, SIGSEGV}) ::signal(signal, SIG_DFL);
    FlightRecorder ring(rings, 1 << 20, place.incidents, "model");
    std::mt19937 random(static_cast<unsigned>(::getpid()));
    for (std::int64_t i = 0;; ++i) {
      const Given inputs({numbered(i, random() % 8000), numbered(i, 3)});
      ring.begin(i, inputs, false);
      std::int64_t said[] = {i, 0};
      if (::write(pipe[1], said, sizeof said) != sizeof said) ::_exit(1);
      in_child(i);
      ring.end(i, {static_cast<std::uint64_t>(i)});
      said[1] = 1;
      if (::write(pipe[1], said, sizeof said) != sizeof said) ::_exit(1);
    }
  }
  ::close(pipe[1]);
  if (kill) {
    std::int64_t said[2];
    if (::read(pipe[0], said, sizeof said) != sizeof said) BOOST_ERROR("the child said nothing");
    kill(child);
  }
  Killed end;
  for (std::int64_t said[2]; ::read(pipe[0], said, sizeof said) == sizeof said;) {
    end.begun = said[0];
    if (said[1] != 0) end.finished = said[0];
  }
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  return end;
}

/// Whether the incident has what the child had done: the last finished forward, and the one it was in.
void check_incident(const std::string& folder, const Killed& end) {
  const auto incident = parts::read_incident(folder);
  BOOST_TEST_REQUIRE(!incident.forwards.empty());
  std::int64_t newest_returned = -1;
  for (std::size_t i = 0; i < incident.forwards.size(); ++i) {
    const KeptForward& forward = incident.forwards[i];
    BOOST_TEST(is_numbered(forward));
    BOOST_TEST((i == 0 || forward.number == incident.forwards[i - 1].number + 1));
    if (!forward.returned) continue;
    newest_returned = forward.number;
    BOOST_TEST(forward.outcome.digest == static_cast<std::uint64_t>(forward.number));
  }
  BOOST_TEST(incident.forwards.back().number >= end.begun);
  BOOST_TEST(newest_returned >= end.finished);
}

BOOST_AUTO_TEST_CASE(two_hundred_kills_damage_no_record) {
  std::mt19937 random(2);
  int in_time = 0;
  for (int kill = 0; kill < 200; ++kill) {
    const Place place;
    const std::string rings = kill % 4 < 2 ? place.rings : place.incidents;
    const Killed end = killed(
        place,
        [&](pid_t child) {
          ::usleep(static_cast<useconds_t>(random() % 4000));
          ::kill(child, kill % 2 != 0 ? SIGKILL : SIGSEGV);
        },
        [](std::int64_t) {}, rings);
    in_time += end.finished > 0 ? 1 : 0;
    const auto made = monitor::recover_incidents(place.incidents);
    BOOST_TEST_REQUIRE(made.size() == 1U);
    check_incident(made[0], end);
    BOOST_TEST(parts::ring_names(place.incidents).empty());
    BOOST_TEST(parts::ring_names(rings).empty());
    BOOST_TEST(monitor::recover_incidents(place.incidents).empty());
  }
  BOOST_TEST(in_time > 100);  // most had done something
}

BOOST_AUTO_TEST_CASE(each_way_to_end_leaves_the_forward_that_did_not_return) {
  const std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"abort", [] { std::abort(); }},
      {"_exit", [] { ::_exit(3); }},
      {"an uncaught exception", [] { std::thread([] { throw std::runtime_error("uncaught"); }).join(); }},
      {"a wild pointer", [] { *reinterpret_cast<volatile int*>(8) = 1; }}};
  for (const auto& [name, way] : ways) {
    BOOST_TEST_CONTEXT(name) {
      const Place place;
      const Killed end = killed(
          place, {},
          [way = way](std::int64_t i) {
            if (::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(4);
            if (i == 50) way();
          },
          place.rings);
      BOOST_TEST(end.begun == 50);
      const auto made = monitor::recover_incidents(place.incidents);
      BOOST_TEST_REQUIRE(made.size() == 1U);
      check_incident(made[0], end);
      const auto incident = parts::read_incident(made[0]);
      BOOST_TEST(incident.reason == "crash");
      BOOST_TEST(incident.forwards.back().number == 50);
      BOOST_TEST(!incident.forwards.back().returned);
    }
  }
}

BOOST_AUTO_TEST_CASE(processes_in_one_folder_have_rings_of_their_own) {
  const Place place;
  FlightRecorder living(place.rings, 1 << 16, place.incidents, "model");
  const auto kill = [](pid_t child) { ::kill(child, SIGKILL); };
  for (int i = 0; i < 2; ++i)
    killed(
        place, kill, [](std::int64_t) {}, place.rings);
  killed(
      place, kill, [](std::int64_t) {}, place.incidents);
  BOOST_TEST(parts::ring_names(place.rings).size() == 3U);
  BOOST_TEST(monitor::recover_incidents(place.incidents).size() == 3U);
  BOOST_TEST(parts::ring_names(place.rings).size() == 1U);
  BOOST_TEST(living.begin(0, Given({numbered(0, 5)}), false));
  BOOST_TEST(living.forwards().size() == 1U);
}

/// A ring with some forwards, as a killed process leaves it.
std::string left_ring(const Place& place) {
  std::string copy;
  FlightRecorder ring(place.rings, 1 << 17, place.incidents, "model");
  for (std::int64_t i = 0; i < 40; ++i) {
    ring.begin(i, Given({numbered(i, 200 + i * 10), at::randn({3, 4}).t()}), false);
    ring.end(i, {static_cast<std::uint64_t>(i)});
    ring.note_window("{\"window\":1}");
  }
  return bytes_of(ring.file());
}

BOOST_AUTO_TEST_CASE(any_bytes_can_be_read) {
  const Place place;
  const std::string good = left_ring(place);
  const auto whole = parts::read_ring(good, "good");
  BOOST_TEST(whole.damage == "");
  BOOST_TEST(whole.model == "model");
  BOOST_TEST(whole.incidents == fs::canonical(place.incidents).string());
  BOOST_TEST(whole.pid == ::getpid());
  BOOST_TEST_REQUIRE(whole.forwards.size() > 10U);
  BOOST_TEST(whole.windows.size() > 10U);
  std::mt19937 random(3);
  int damaged = 0, refused = 0, wrong = 0;
  const auto read = [&](const std::string& bytes) {
    try {
      const auto content = parts::read_ring(bytes, "bad");
      damaged += content.damage.empty() ? 0 : 1;
      BOOST_TEST_REQUIRE(content.forwards.size() <= whole.forwards.size());
      for (const KeptForward& forward : content.forwards)
        wrong += forward.inputs.size() == 2 && is_numbered({forward.number,
                                                            0,
                                                            0,
                                                            false,
                                                            false,
                                                            false,
                                                            1,
                                                            {},
                                                            {forward.inputs[0]},
                                                            {},
                                                            {},
                                                            false,
                                                            {}})
                     ? 0
                     : 1;
    } catch (const c10::ValueError&) {
      ++refused;
    }
  };
  for (std::size_t size = 0; size < good.size(); size += 997) read(good.substr(0, size));
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    const std::size_t begin = i % 3 == 0 ? 0 : parts::kRingAbout * (i % 2);
    const std::size_t range = i % 3 == 0 ? 512 : bytes.size() - begin;
    for (std::size_t n = 1 + random() % (i % 5 == 0 ? 2000 : 4); n != 0; --n)
      bytes[begin + random() % range] = static_cast<char>(random());
    read(bytes);
  }
  // What stands in headers: every field of some frames, with numbers that are as bad as can be.
  std::vector<std::size_t> frames;
  for (std::size_t at = torchtap::views::frames::kDataOffset; at + 64 < good.size(); at += 64)
    if (good.compare(at, 4, "TTF1") == 0) frames.push_back(at);
  BOOST_TEST_REQUIRE(frames.size() > 20U);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    static constexpr std::uint64_t kBad[] = {0,
                                             1,
                                             63,
                                             64,
                                             65,
                                             0x7fffffff,
                                             0x80000000,
                                             ~std::uint64_t{0},
                                             std::uint64_t{1} << 63,
                                             std::uint64_t{1} << 40};
    const std::size_t at = frames[random() % frames.size()] + random() % 190;
    std::memcpy(&bytes[at], &kBad[random() % 10], 1 + random() % 8);
    read(bytes);
  }
  BOOST_TEST(damaged > 500);
  BOOST_TEST(refused > 10);
  BOOST_TEST_MESSAGE(damaged << " damaged, " << refused << " refused, " << wrong
                             << " forwards of other bytes");
  for (int i = 0; i < 200; ++i) {
    std::string noise(random() % 30000, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    if (noise.size() > 8 && i % 2 == 0) std::memcpy(noise.data(), "TTA1\1\0\0\0", 8);
    read(noise);
  }
}

BOOST_AUTO_TEST_CASE(rings_that_cannot_be_read_make_no_incident) {
  const Place place;
  const std::string good = left_ring(place);
  write_bytes(place.incidents + "/ring-1-0", "nothing");
  write_bytes(place.incidents + "/ring-2-0", good.substr(0, 100));
  write_bytes(place.incidents + "/ring-3-0", "/nowhere/ring-3-0");
  std::string newer = good;
  newer[4] = 9;
  write_bytes(place.incidents + "/ring-4-0", newer);
  write_bytes(place.incidents + "/ring-5-0", good);
  fs::create_symlink("/etc/passwd", place.incidents + "/ring-6-0");
  BOOST_TEST(monitor::recover_incidents(place.incidents).size() == 1U);
  const auto left = parts::ring_names(place.incidents);
  BOOST_TEST((left == std::vector<std::string>{"ring-4-0", "ring-6-0"}));
  BOOST_CHECK_EXCEPTION(monitor::recover_incidents(place.directory / "none"), c10::ValueError,
                        says({"recover_incidents", "is no folder"}));
}

BOOST_AUTO_TEST_CASE(a_program_that_writes_over_its_ring_goes_on) {
  const Place place;
  FlightRecorder ring(place.rings, 1 << 16, place.incidents, "model");
  for (std::int64_t i = 0; i < 5; ++i) ring.begin(i, Given({numbered(i, 500)}), false);
  {
    std::fstream file(ring.file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(torchtap::views::frames::kDataOffset);
    file << std::string(20000, 'x');
  }
  for (std::int64_t i = 5; i < 40; ++i) BOOST_TEST(ring.begin(i, Given({numbered(i, 500)}), false));
  const auto forwards = ring.forwards();
  BOOST_TEST_REQUIRE(!forwards.empty());
  BOOST_TEST(forwards.back().number == 39);
  for (const KeptForward& forward : forwards) BOOST_TEST(is_numbered(forward));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace torchtap_test
