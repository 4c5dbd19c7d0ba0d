// Kills child processes at a certain system call: the test program defines these calls itself, in front of
// the C library's, and counts them.
#include "killed.hpp"

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <iostream>

namespace {

std::atomic<std::int64_t> calls_left{0};  // 0: none is killed

bool last_call() {
  return calls_left.load(std::memory_order_relaxed) > 0 && --calls_left == 0;
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

void count() {
  if (last_call()) die();
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  const bool last = last_call();
  const auto written = ::syscall(SYS_write, fd, data, last ? size / 2 : size);
  if (last) die();
  return written;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  const bool last = last_call();
  const auto written = ::syscall(SYS_pwrite64, fd, data, last ? size / 2 : size, offset);
  if (last) die();
  return written;
}

int rename(const char* from, const char* to) noexcept {
  count();
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  count();
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  count();
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int link(const char* from, const char* to) noexcept {
  count();
  return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int unlink(const char* path) noexcept {
  count();
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  count();
  return static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}

int mkdir(const char* path, mode_t mode) noexcept {
  count();
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

}  // extern "C"

namespace torchtap_test {

bool kill_at(std::int64_t call, const std::function<void()>& work) {
  const pid_t child = ::fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    try {
      calls_left = call;
      work();
      calls_left = 0;
    } catch (const std::exception& error) {
      calls_left = 0;
      std::cerr << "kill_at: " << error.what() << std::endl;
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) {
    BOOST_REQUIRE(WTERMSIG(status) == SIGKILL);
    return true;
  }
  BOOST_REQUIRE(WIFEXITED(status));
  BOOST_REQUIRE_MESSAGE(WEXITSTATUS(status) == 0, "the child failed with " << WEXITSTATUS(status));
  return false;
}

}  // namespace torchtap_test
