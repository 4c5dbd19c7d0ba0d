// Readers and publishers that die, hang, lie or talk nonsense.
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include <torchtap/views/stream/detail/handshake.hpp>

#include "transport.hpp"

using namespace torchtap_test;
namespace parts = stream::detail;

namespace {

/// Runs `body` in a forked process, which ends with 0 unless it throws.
pid_t in_child(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  try {
    body();
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

int end_of(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// What a reader gets, for tests that do with it what a reader should not.
struct Raw {
  parts::Descriptor socket;
  std::vector<parts::Descriptor> descriptors;
  parts::Welcome welcome;
};

Raw join_raw(const Rendezvous& here, const Subscription& subscription) {
  Raw raw;
  int error = 0;
  raw.socket = parts::connect(here / "test.sock", error);
  BOOST_REQUIRE(error == 0);
  BOOST_REQUIRE(parts::send(raw.socket, parts::write_subscribe(subscription)));
  std::string packet;
  while (parts::receive(raw.socket, packet, &raw.descriptors) == parts::Received::nothing) {
    std::this_thread::sleep_for(1ms);
  }
  raw.welcome = parts::read_welcome(packet);
  BOOST_REQUIRE(raw.descriptors.size() == 2U);
  return raw;
}

}  // namespace

BOOST_AUTO_TEST_CASE(readers_killed_at_any_moment_cost_nothing) {
  const Rendezvous here;
  Server server("test", here.options(1 << 18));
  const auto source = server.add({"a", {}, "", Kind::other});
  Client witness = here.reader(Subscription().when_full(WhenFull::wait));
  std::mt19937 random(2);
  std::uint64_t sample = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t pid = in_child([&] {
      Client client = here.reader(Subscription().when_full(round % 2 == 0 ? WhenFull::wait : WhenFull::skip));
      for (;;) client.next(1ms);
    });
    BOOST_REQUIRE(pid > 0);
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 8000);
    bool killed = false;
    for (int more = 0; more < 50;) {
      BOOST_REQUIRE(publish(server, *source, sample, 1 + random() % 2000));
      const auto frame = witness.next(20s);
      BOOST_REQUIRE(frame.has_value());
      BOOST_REQUIRE(frame->sample == sample);
      BOOST_REQUIRE(intact(*frame));
      ++sample;
      if (!killed && std::chrono::steady_clock::now() >= until) {
        ::kill(pid, SIGKILL);
        killed = true;
      }
      more += killed ? 1 : 0;
    }
    BOOST_TEST(WIFSIGNALED(end_of(pid)));
  }
  while (server.readers().size() > 1) std::this_thread::sleep_for(1ms);
  BOOST_TEST(witness.missed() == 0U);
  BOOST_TEST(server.readers()[0].offered == sample);
}

BOOST_AUTO_TEST_CASE(publishers_killed_at_any_moment_leave_what_was_whole) {
  const Rendezvous here;
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const pid_t pid = in_child([&] {
      Server server("test", here.options(1 << 18));
      const auto source = server.add({"a", {}, "", Kind::other});
      for (std::uint64_t i = 0;;) i += publish(server, *source, i, 1 + i % 4000) ? 1 : 0;
    });
    BOOST_REQUIRE(pid > 0);
    Client client = here.reader(Subscription().when_full(round % 2 == 0 ? WhenFull::wait : WhenFull::skip));
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 8000);
    bool killed = false;
    std::uint64_t next = 0;
    while (auto frame = client.next(20s)) {
      BOOST_REQUIRE(intact(*frame));
      BOOST_REQUIRE(frame->sample >= next);
      if (client.missed() == 0) BOOST_REQUIRE(frame->sample == next);
      next = frame->sample + 1;
      if (!killed && std::chrono::steady_clock::now() >= until) {
        ::kill(pid, SIGKILL);
        killed = true;
      }
    }
    BOOST_TEST(client.ended());
    BOOST_TEST(client.broken().find("was killed or crashed") != std::string::npos);
    BOOST_TEST(WIFSIGNALED(end_of(pid)));
  }
  // Its socket is still there, and nobody is told of it.
  BOOST_TEST(fs::exists(here / "test.sock"));
  const Server living("living", here.options());
  BOOST_CHECK_EXCEPTION(here.reader({}, "nobody"), c10::ValueError, [](const c10::Error& error) {
    return std::string(error.what()).find("there: \"living\".") != std::string::npos;
  });
  Server again("test", here.options());  // the socket of the last one is replaced
  BOOST_TEST(here.reader().process() == ::getpid());
}

BOOST_AUTO_TEST_CASE(a_forked_child_of_the_program_publishes_nothing_and_holds_nothing) {
  const Rendezvous here;
  const pid_t parent = in_child([&] {
    auto server = std::make_unique<Server>("test", here.options());
    const auto source = server->add({"a", {}, "", Kind::other});
    while (!publish(*server, *source, 0)) std::this_thread::yield();
    const pid_t child = ::fork();
    if (child == 0) {
      bool nothing = !publish(*server, *source, 1) && server->readers().empty();
      server->annotate("child");
      server->add({"b", {}, "", Kind::other});
      server.reset();
      ::sleep(nothing ? 60 : 0);  // lives longer than its parent
      ::_exit(0);
    }
    publish(*server, *source, 2);
    const int file = ::open((here / "child").c_str(), O_WRONLY | O_CREAT, 0600);
    ::dprintf(file, "%d", child);
    ::usleep(200000);
    ::raise(SIGKILL);
  });
  Client client = here.reader(Subscription().when_full(WhenFull::wait));
  BOOST_TEST((read_all(client) == std::vector<std::uint64_t>{0, 2}));
  BOOST_TEST(client.ended());  // although the child lives
  BOOST_TEST(WIFSIGNALED(end_of(parent)));
  char text[16] = {};
  const int file = ::open((here / "child").c_str(), O_RDONLY);
  BOOST_REQUIRE(::read(file, text, sizeof text - 1) > 0);
  const pid_t child = std::atoi(text);
  BOOST_TEST(::kill(child, 0) == 0);
  ::kill(child, SIGKILL);
}

BOOST_AUTO_TEST_CASE(a_forked_child_of_a_reader_is_told_so) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto source = server.add({"a", {}, "", Kind::other});
  Client client = here.reader(Subscription().when_full(WhenFull::wait));
  publish(server, *source, 0);
  BOOST_REQUIRE(client.next(20s).has_value());
  const int status = end_of(in_child([&] {
    try {
      if (client.whole() || client.demoted()) ::_exit(2);
      client.release();
      client.next(0s);
    } catch (const c10::ValueError&) {
      ::_exit(0);
    }
    ::_exit(3);
  }));
  BOOST_TEST(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 0);
  BOOST_TEST(client.whole());
  publish(server, *source, 1);
  BOOST_TEST(client.next(20s)->sample == 1U);
}

BOOST_AUTO_TEST_CASE(readers_cannot_change_the_memory) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto source = server.add({"a", {}, "", Kind::other});
  const Raw raw = join_raw(here, {});
  const int memory = raw.descriptors[0].get();
  const std::size_t bytes = raw.welcome.bytes;
  BOOST_TEST(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED);
  BOOST_TEST(::write(memory, "x", 1) == -1);
  BOOST_TEST(::ftruncate(memory, 0) == -1);
  BOOST_TEST(::ftruncate(memory, static_cast<off_t>(bytes) * 2) == -1);
  BOOST_TEST(::fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
  BOOST_TEST(::fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) == -1);
  const int again = ::open(("/proc/self/fd/" + std::to_string(memory)).c_str(), O_RDWR);
  BOOST_TEST(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
  ::close(again);
  void* const page = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory, 0);
  BOOST_REQUIRE(page != MAP_FAILED);
  BOOST_TEST(::mprotect(page, bytes, PROT_READ | PROT_WRITE) == -1);
  BOOST_TEST(::ftruncate(raw.descriptors[1].get(), 0) == -1);  // its own page: the publisher reads it
  ::munmap(page, bytes);
}

BOOST_AUTO_TEST_CASE(a_reader_that_lies_about_its_place_harms_itself_alone) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options(1 << 16, 20ms));
  const auto source = server->add({"a", {}, "", Kind::other});
  Client honest = here.reader(Subscription().when_full(WhenFull::wait));
  const Raw raw = join_raw(here, Subscription().when_full(WhenFull::wait));
  auto* const control = static_cast<parts::Control*>(
      ::mmap(nullptr, parts::kPage, PROT_READ | PROT_WRITE, MAP_SHARED, raw.descriptors[1].get(), 0));
  BOOST_REQUIRE(static_cast<void*>(control) != MAP_FAILED);
  const std::uint64_t lies[] = {0, UINT64_MAX, std::uint64_t{1} << 63, 1, 12345, UINT64_MAX - 63};
  for (std::uint64_t i = 0; i < 3000; ++i) {
    control->cursor.store(lies[i % std::size(lies)]);
    control->received.store(UINT64_MAX);
    BOOST_REQUIRE(publish(*server, *source, i, 1 + i % 1000));
    const auto frame = honest.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_REQUIRE(frame->sample == i);
    BOOST_REQUIRE(intact(*frame));
  }
  BOOST_TEST(honest.missed() == 0U);
  BOOST_TEST(server->readers()[1].demoted);
  parts::ask_status(here / "test.sock");
  ::munmap(control, parts::kPage);
}

BOOST_AUTO_TEST_CASE(nonsense_at_the_door_is_answered_or_ignored) {
  const Rendezvous here;
  Server server("test", here.options(1 << 16));
  const auto source = server.add({"a", {}, "", Kind::other});
  Client honest = here.reader(Subscription().when_full(WhenFull::wait));
  std::mt19937 random(4);
  std::uint64_t sample = 0;
  std::vector<parts::Descriptor> silent;
  std::size_t refused = 0;
  std::size_t welcome = 0;
  for (int round = 0; round < 1000; ++round) {
    int error = 0;
    auto socket = parts::connect(here / "test.sock", error);
    if (error == EAGAIN) {  // as many wait as the system lets
      std::this_thread::sleep_for(1ms);
      continue;
    }
    BOOST_REQUIRE(error == 0);
    if (round % 20 == 0) {
      silent.push_back(std::move(socket));  // says nothing
      continue;
    }
    std::string packet = parts::write_subscribe(Subscription().names({"a*", "b?"}).hz(5).label("fuzz"));
    if (round % 3 == 0) {
      packet.assign(1 + random() % 300, '\0');
      for (char& byte : packet) byte = static_cast<char>(random());
    } else if (round % 3 == 1) {
      for (int i = 0; i < 3; ++i) packet[random() % packet.size()] = static_cast<char>(random());
    } else {
      packet.resize(random() % packet.size() + 1);
    }
    if (round % 7 == 0 && packet.size() > 5) packet[4] = 2, packet[5] = 0;  // another version
    BOOST_REQUIRE(parts::send(socket, packet));
    if (round % 2 == 0) {
      pollfd polled{socket.get(), POLLIN, 0};
      BOOST_REQUIRE(::poll(&polled, 1, 20000) == 1);
      std::string answer;
      std::vector<parts::Descriptor> descriptors;
      if (parts::receive(socket, answer, &descriptors) == parts::Received::packet) {
        const auto kind = parts::kind_of_message(answer);
        refused += kind == parts::Message::refused ? 1 : 0;
        welcome += kind == parts::Message::welcome ? 1 : 0;
      }
    }
    BOOST_REQUIRE(publish(server, *source, sample, 10));
    const auto frame = honest.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_REQUIRE(frame->sample == sample++);
  }
  BOOST_TEST(refused > 100U);
  BOOST_TEST(welcome > 0U);
  BOOST_TEST(honest.missed() == 0U);
  Client another = here.reader();  // it still serves
  while (!silent.empty()) {        // and closes what says nothing
    pollfd polled{silent.back().get(), POLLIN, 0};
    BOOST_REQUIRE(::poll(&polled, 1, 20000) == 1);
    silent.pop_back();
  }
}

// What a publisher hands over is not trusted, either: no crash (ASan), no hang, and only errors that say so.
BOOST_AUTO_TEST_CASE(damaged_memory_is_an_error_of_the_reader) {
  constexpr std::uint64_t kCapacity = 1 << 14;
  const Rendezvous here;
  std::mt19937_64 random(5);
  std::size_t frames = 0;
  std::size_t errors = 0;
  for (int round = 0; round < 1000; ++round) {
    const parts::Listener listener("test", here / "test.sock");
    const auto memory = parts::make_memory("fake", parts::kDataOffset + kCapacity);
    const auto control = parts::make_memory("fake", parts::kPage);
    const parts::Mapping mapping(memory, parts::kDataOffset + kCapacity, /*writable=*/true);
    char* const bytes = mapping.get();
    const auto put = [&](std::uint64_t at, std::uint64_t value) {
      std::memcpy(bytes + at, &value, sizeof value);
    };
    put(0, parts::kArenaMagic | std::uint64_t{1} << 32);
    put(8, kCapacity);
    std::uint64_t end = 0;
    while (end + 2048 < kCapacity) {  // frames that are right, of which some are damaged then
      const std::uint64_t numbers[4] = {random(), random(), random(), random()};
      Frame frame;
      frame.readers = random() % 4;
      frame.path = "layer1";
      frame.dtype = 4;
      frame.dims = 1;
      frame.sizes[0] = 4;
      frame.data = numbers;
      frame.data_bytes = sizeof numbers;
      stream::write_header(frame, bytes + parts::kDataOffset + end);
      end += stream::frame_bytes(frame);
    }
    const auto odd = [&](std::uint64_t usual) {
      const std::uint64_t values[] = {usual,      usual,     usual,      usual, random(),
                                      UINT64_MAX, kCapacity, usual + 64, 0};
      return values[random() % std::size(values)];
    };
    put(64, odd(end));  // head
    put(128, odd(0));   // tail
    put(192, 1);        // closed
    const std::uint64_t epoch[] = {1, 0, 0, kCapacity};
    const std::uint64_t damaged = random() % 16;
    for (std::uint64_t i = 0; i < 4; ++i) put(256 + 8 * i, damaged == i ? odd(epoch[i]) : epoch[i]);
    put(4096, random() % 3);
    put(4096 + 8, odd(end));
    put(4096 + 16, odd(10));
    put(4096 + 40, random() % 2);
    for (std::uint64_t i = 0; i < random() % 6; ++i) {
      bytes[parts::kDataOffset + random() % 192 + random() % 3 * 256] = static_cast<char>(random());
    }
    std::thread publisher([&] {
      std::optional<parts::Descriptor> socket;
      while (!(socket = parts::accept(listener.socket())).has_value()) std::this_thread::yield();
      std::string packet;
      while (parts::receive(*socket, packet) == parts::Received::nothing) std::this_thread::yield();
      parts::send(*socket, parts::write_welcome({parts::kDataOffset + kCapacity, 0, 0}),
                  {memory.get(), control.get()});
    });
    try {
      Client client = here.reader();
      for (int i = 0; i < 1000 && !client.ended(); ++i) frames += client.next(1ms).has_value() ? 1 : 0;
    } catch (const c10::ValueError&) {
      ++errors;
    }
    publisher.join();
  }
  BOOST_TEST(frames > 1000U);
  BOOST_TEST(errors > 100U);
}

BOOST_AUTO_TEST_CASE(a_publisher_that_is_stopped_does_not_hang_its_readers) {
  const Rendezvous here;
  const pid_t pid = in_child([&] {
    Server server("test", here.options());
    const auto source = server.add({"a", {}, "", Kind::other});
    for (std::uint64_t i = 0;;) i += publish(server, *source, i) ? 1 : 0;
  });
  Client client = here.reader(Subscription().when_full(WhenFull::skip));
  BOOST_TEST(client.next(20s).has_value());
  ::kill(pid, SIGSTOP);
  while (client.next(100ms)) {
  }
  BOOST_TEST(!client.ended());
  ::kill(pid, SIGCONT);
  BOOST_TEST(client.next(20s).has_value());
  ::kill(pid, SIGKILL);
  BOOST_TEST(WIFSIGNALED(end_of(pid)));
  while (client.next(20s)) {
  }
  BOOST_TEST(client.ended());
}

// Anybody may have made /tmp/torchtap-UID first, with anything in it.
BOOST_AUTO_TEST_CASE(folders_of_others_are_passed_over) {
  const TemporaryDirectory runtime;
  const std::string home = runtime / "home";
  const std::string ours = runtime / "torchtap";
  fs::create_directory(home);
  const char* const variables[] = {"XDG_RUNTIME_DIR", "HOME"};
  std::optional<std::string> before[2];
  for (int i = 0; i < 2; ++i) {
    if (const char* const value = ::getenv(variables[i])) before[i] = value;
  }
  ::setenv(variables[0], runtime.path().c_str(), 1);
  ::setenv(variables[1], home.c_str(), 1);
  const auto is_used = [&] {
    const auto looked = parts::meeting_places("");
    const bool read = std::find(looked.begin(), looked.end(), ours) != looked.end();
    const std::string made = parts::rendezvous("");  // throws nothing
    struct stat status {};
    BOOST_TEST(::lstat(made.c_str(), &status) == 0);
    BOOST_TEST((status.st_uid == ::geteuid() && (status.st_mode & 0777) == 0700U));
    BOOST_TEST((made == ours) == read);
    return read;
  };
  BOOST_TEST(parts::rendezvous("") == ours);
  BOOST_TEST(is_used());
  BOOST_REQUIRE(::chmod(ours.c_str(), 0755) == 0);
  BOOST_TEST(!is_used());
  BOOST_CHECK_EXCEPTION(parts::rendezvous(ours), c10::ValueError, says({"nobody else may enter"}));
  BOOST_CHECK_EXCEPTION(parts::meeting_places(ours), c10::ValueError, says({"nobody else may enter"}));
  fs::remove(ours);
  fs::create_directory_symlink(home, ours);
  BOOST_TEST(!is_used());
  fs::remove(ours);
  if (::geteuid() == 0) {
    BOOST_REQUIRE(::mkdir(ours.c_str(), 0700) == 0);
    BOOST_REQUIRE(::chown(ours.c_str(), 65534, 65534) == 0);
    BOOST_TEST(!is_used());
    BOOST_TEST(parts::meeting_places(ours).front() == ours);  // root named it
  }
  for (int i = 0; i < 2; ++i) {
    if (before[i].has_value()) ::setenv(variables[i], before[i]->c_str(), 1);
    if (!before[i].has_value()) ::unsetenv(variables[i]);
  }
}

// Only root can be somebody else.
BOOST_AUTO_TEST_CASE(another_user_is_turned_away, *boost::unit_test::precondition([](auto) {
                       boost::test_tools::assertion_result root(::geteuid() == 0);
                       root.message() << "only root may become another user";
                       return root;
                     })) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto source = server.add({"a", {}, "", Kind::other});
  const auto try_as_nobody = [&] {
    return WEXITSTATUS(end_of(in_child([&] {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
      int error = 0;
      parts::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::strcpy(address.sun_path, (here / "test.sock").c_str());
      if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(errno);
      parts::send(socket, parts::write_subscribe({}));
      pollfd polled{socket.get(), POLLIN, 0};
      ::poll(&polled, 1, 20000);
      std::string packet;
      (void)error;
      ::_exit(parts::receive(socket, packet) == parts::Received::end ? 100 : 101);
    })));
  };
  BOOST_TEST(try_as_nobody() == EACCES);  // the directory
  BOOST_REQUIRE(::chmod(here.path().c_str(), 0755) == 0);
  BOOST_TEST(try_as_nobody() == EACCES);  // the socket
  BOOST_REQUIRE(::chmod((here / "test.sock").c_str(), 0666) == 0);
  BOOST_TEST(try_as_nobody() == 100);  // the uid
  BOOST_REQUIRE(::chmod(here.path().c_str(), 0700) == 0);
}
