// Kills processes at certain system calls, and lets such calls fail.
#include "system_calls.hpp"

#include <boost/test/unit_test.hpp>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <exception>
#include <iostream>
#include <utility>

namespace torchtap_test {

std::atomic<int (*)(int fd)> before_fsync{nullptr};
std::atomic<bool> without_exchange{false};
std::atomic<bool> without_waiting{false};

}  // namespace torchtap_test

namespace {

std::atomic<std::int64_t> calls_left{0};  // 0: none is killed
std::atomic<torchtap_test::Failing*> failing{nullptr};

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

bool fails(const char* call, const char* path) {
  auto* const now = failing.load();
  return now != nullptr && now->takes(call, path);
}

bool fails(const char* call, int fd, const char* name = "") {
  auto* const now = failing.load();
  if (now == nullptr || name[0] == '/') return fails(call, name);
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
  return size > 0 && now->takes(call, std::string(path, static_cast<std::size_t>(size)) + "/" + name);
}

template <class... Arguments>
int made(long number, Arguments... arguments) {
  return static_cast<int>(::syscall(number, arguments...));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return fails("open", path) ? -1 : made(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return fails("openat", folder, path) ? -1 : made(SYS_openat, folder, path, flags, mode);
}

DIR* opendir(const char* path) {
  if (fails("opendir", path)) return nullptr;
  const int fd = made(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  return fd < 0 ? nullptr : ::fdopendir(fd);
}

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (command == F_DUPFD_CLOEXEC && fails("fcntl", fd)) return -1;
  return made(SYS_fcntl, fd, command, argument);
}

int close(int fd) {
  const bool fail = fails("close", fd);
  const int result = made(SYS_close, fd);
  if (fail) errno = EIO;
  return fail ? -1 : result;
}

ssize_t write(int fd, const void* data, size_t size) {
  const bool fail = fails("write", fd);  // in the middle
  const bool last = last_call();
  const auto written = ::syscall(SYS_write, fd, data, last || fail ? size / 2 : size);
  if (last) die();
  if (fail) errno = EIO;
  return fail ? -1 : written;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  const bool fail = fails("pwrite", fd);
  const bool last = last_call();
  const auto written = ::syscall(SYS_pwrite64, fd, data, last || fail ? size / 2 : size, offset);
  if (last) die();
  if (fail) errno = EIO;
  return fail ? -1 : written;
}

int fsync(int fd) {
  if (fails("fsync", fd)) return -1;
  if (const auto ask = torchtap_test::before_fsync.load()) {
    if (const int error = ask(fd)) {
      errno = error;
      return -1;
    }
  }
  return torchtap_test::without_waiting ? 0 : made(SYS_fsync, fd);
}

int ftruncate(int fd, off_t size) noexcept {
  return fails("ftruncate", fd) ? -1 : made(SYS_ftruncate, fd, size);
}

int flock(int fd, int how) noexcept {
  return fails("flock", fd) ? -1 : made(SYS_flock, fd, how);
}

int rename(const char* from, const char* to) noexcept {
  count();
  return fails("rename", from) ? -1 : made(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  count();
  return fails("renameat", from_folder, from) ? -1 : made(SYS_renameat2, from_folder, from, to_folder, to, 0);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  count();
  if (fails("renameat2", from_folder, from)) return -1;
  if (flags == RENAME_EXCHANGE && torchtap_test::without_exchange) {
    errno = EINVAL;
    return -1;
  }
  return made(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int link(const char* from, const char* to) noexcept {
  count();
  return fails("link", from) ? -1 : made(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char* path) noexcept {
  count();
  return fails("unlink", path) ? -1 : made(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  count();
  return fails("unlinkat", folder, path) ? -1 : made(SYS_unlinkat, folder, path, flags);
}

int rmdir(const char* path) noexcept {
  return fails("rmdir", path) ? -1 : made(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdir(const char* path, mode_t mode) noexcept {
  count();
  return fails("mkdir", path) ? -1 : made(SYS_mkdirat, AT_FDCWD, path, mode);
}

int fstatat(int folder, const char* path, struct stat* status, int flags) noexcept {
  return fails("fstatat", folder, path) ? -1 : made(SYS_newfstatat, folder, path, status, flags);
}

}  // extern "C"

namespace torchtap_test {

Failing::Failing(Faults faults) : faults_(std::move(faults)) {
  failing = this;
}
Failing::~Failing() {
  failing = nullptr;
}

std::string Failing::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

bool Failing::takes(const char* call, const std::string& path) {
  if (path.compare(0, faults_.folder.size(), faults_.folder) != 0) return false;
  if (faults_.only.empty() ? std::string(call) == "fstatat" : call != faults_.only) return false;
  const std::int64_t number = ++calls_;
  if (faults_.first == 0 || number < faults_.first || (number > faults_.first && !faults_.all)) return false;
  const std::lock_guard lock(mutex_);
  if (failed_.empty()) failed_ = call + (" " + path);
  errno = EIO;
  return true;
}

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
