// What Linux and macOS call by different names. No other file of the library asks which system it is.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#include <cerrno>
#include <ctime>

#include <torchtap/base/system.hpp>

namespace torchtap::base {

#if defined(__APPLE__)

void name_this_thread(const char* name) noexcept {
  ::pthread_setname_np(name);
}

void take_pending(const sigset_t& set) noexcept {
  for (int number = 1; number < NSIG; ++number) {
    sigset_t pending;
    if (sigismember(&set, number) != 1 || ::sigpending(&pending) != 0 || sigismember(&pending, number) != 1)
      continue;
    int taken = 0;
    ::sigwait(&set, &taken);
    return;
  }
}

int rename(const std::string& from, const std::string& to, Rename how) noexcept {
  return ::renamex_np(from.c_str(), to.c_str(), how == Rename::exchange ? RENAME_SWAP : RENAME_EXCL);
}

#else

void name_this_thread(const char* name) noexcept {
  ::pthread_setname_np(::pthread_self(), name);
}

void take_pending(const sigset_t& set) noexcept {
  const timespec now{};
  while (::sigtimedwait(&set, nullptr, &now) < 0 && errno == EINTR) {
  }
}

int rename(const std::string& from, const std::string& to, Rename how) noexcept {
#if defined(RENAME_EXCHANGE)
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                     how == Rename::exchange ? RENAME_EXCHANGE : RENAME_NOREPLACE);
#else  // a C library of before 2018
  static_cast<void>(from), static_cast<void>(to), static_cast<void>(how);
  errno = ENOSYS;
  return -1;
#endif
}

#endif

}  // namespace torchtap::base
