// Threads that leave the program's signals to the program's threads.
#include <boost/test/unit_test.hpp>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <exception>
#include <future>
#include <thread>
#include <vector>

#include <torchtap/base/thread.hpp>

using torchtap::base::start_thread;

BOOST_AUTO_TEST_CASE(a_started_thread_takes_no_signals_and_its_starter_still_does) {
  sigset_t there, here;
  start_thread("torchtap-test", [&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &there); }).join();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &here);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM}) {
    BOOST_TEST(::sigismember(&there, number) == 1);
    BOOST_TEST(::sigismember(&here, number) == 0);
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGABRT}) BOOST_TEST(::sigismember(&there, fault) == 0);
}

// Sanitizers need memory themselves while there is none.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
BOOST_AUTO_TEST_CASE(a_thread_that_cannot_be_started_leaves_signals_as_they_were) {
  std::promise<void> stop;
  const std::shared_future<void> stopped = stop.get_future();
  std::vector<std::thread> threads;
  threads.reserve(64);
  rlimit before{};
  BOOST_TEST_REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit none{1, before.rlim_max};  // no memory for the stack of a thread
  BOOST_TEST_REQUIRE(::setrlimit(RLIMIT_AS, &none) == 0);
  // Emulators of other processors do not pass such a limit on.
  void* const more = ::mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool limited = more == MAP_FAILED;
  if (!limited) ::munmap(more, 1 << 20);
  bool thrown = false;
  try {  // the first ones may get stacks of threads that ended
    while (threads.size() < 64) threads.push_back(start_thread("torchtap-test", [&] { stopped.wait(); }));
  } catch (const std::exception&) {
    thrown = true;
  }
  ::setrlimit(RLIMIT_AS, &before);
  stop.set_value();
  for (auto& thread : threads) thread.join();
  sigset_t here;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &here);
  BOOST_TEST(::sigismember(&here, SIGINT) == 0);
  BOOST_TEST((thrown || !limited));
}
#endif
