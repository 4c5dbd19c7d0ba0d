// What a forked child gets, and what it does not.
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <torchtap/base/process.hpp>

BOOST_AUTO_TEST_SUITE(process)

using torchtap::base::KeptHere;
using torchtap::base::MadeHere;
using torchtap::base::NoForks;

namespace {

bool is_open(int descriptor) {
  return ::fcntl(descriptor, F_GETFD) != -1;
}

int opened() {
  const int descriptor = ::open("/dev/null", O_RDWR);
  BOOST_TEST_REQUIRE(descriptor >= 0);
  return descriptor;
}

/// Whether `function` returns true in a forked child.
template <class Function>
bool holds_in_child(const Function& function) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(function() ? 0 : 1);
  int status = -1;
  BOOST_TEST_REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_child_is_another_process) {
  const MadeHere mine;
  BOOST_TEST(static_cast<bool>(mine));
  BOOST_TEST(holds_in_child([&] {
    const MadeHere of_child;
    return !mine && of_child && holds_in_child([&] { return !mine && !of_child; });
  }));
  BOOST_TEST(static_cast<bool>(mine));
}

BOOST_AUTO_TEST_CASE(a_kept_descriptor_is_closed_in_a_child_and_by_exec) {
  const int plain = opened(), number = opened();
  {
    KeptHere kept(number);
    BOOST_TEST(kept.get() == number);
    BOOST_TEST((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
    BOOST_TEST(holds_in_child([&] { return !is_open(number) && is_open(plain); }));
    KeptHere moved;
    moved = std::move(kept);
    BOOST_TEST(kept.get() == -1);
    BOOST_TEST(holds_in_child([&] { return !is_open(number); }));
  }
  // No longer kept, and not closed.
  BOOST_TEST(is_open(number));
  BOOST_TEST(holds_in_child([&] { return is_open(number); }));
  ::close(number);
  ::close(plain);
}

BOOST_AUTO_TEST_CASE(close_closes_in_the_process_that_kept_it) {
  KeptHere kept(opened());
  const int number = kept.get();
  BOOST_TEST(holds_in_child([&] {
    const int other = ::open("/dev/zero", O_RDONLY);  // gets the number, which is free
    kept.close();
    return other == number && is_open(other) && kept.get() == -1;
  }));
  BOOST_TEST(is_open(number));
  kept.close();
  BOOST_TEST(!is_open(number));
  BOOST_TEST(kept.get() == -1);
  kept.close();
}

BOOST_AUTO_TEST_CASE(a_child_closes_nothing_else_that_got_the_number) {
  const KeptHere kept(opened());
  const int other = ::open("/dev/zero", O_RDONLY);
  BOOST_TEST_REQUIRE(::dup2(other, kept.get()) == kept.get());
  BOOST_TEST(holds_in_child([&] { return is_open(kept.get()); }));
  ::close(kept.get());
  ::close(other);
}

BOOST_AUTO_TEST_CASE(a_child_of_a_child_is_not_told_twice) {
  KeptHere kept(opened());
  const int number = kept.get();
  BOOST_TEST(holds_in_child([&] {
    KeptHere of_child(::open("/dev/zero", O_RDONLY));
    if (of_child.get() != number) return false;
    kept = KeptHere();  // the parent's, of the same number
    return is_open(number) && holds_in_child([&] { return !is_open(number); });
  }));
  kept.close();
}

BOOST_AUTO_TEST_CASE(a_fork_waits_until_a_descriptor_is_kept) {
  std::atomic<bool> forks{false}, forked{false}, child_is_clean{false};
  std::optional<KeptHere> kept;
  std::thread forking;
  {
    const NoForks here_alone;
    const int number = opened();
    forking = std::thread([&, number] {
      forks = true;
      child_is_clean = holds_in_child([&] { return !is_open(number); });
      forked = true;
    });
    while (!forks) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    BOOST_TEST(!forked);
    kept.emplace(number, here_alone);
  }
  forking.join();
  BOOST_TEST(child_is_clean);
  kept->close();
}

BOOST_AUTO_TEST_SUITE_END()
