#pragma once

/// Kills the process at a certain system call, lets such calls fail, and watches them. The test program
/// defines these functions itself, in front of the C library's.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace torchtap_test {

/// Runs `work` in a child process, and kills that (SIGKILL) at its `call`th system call that changes a file,
/// from 1: instead of the call, or in the middle of a write. Returns true if the child was killed, false if
/// `work` ended before. Fails the test if `work` throws.
///
/// Counts write, pwrite, rename, renameat, renameat2, link, unlink, unlinkat and mkdir of all threads.
bool kill_at(std::int64_t call, const std::function<void()>& work);

/// Which system calls fail.
struct Faults {
  std::string folder;      ///< those that concern it, or files in it
  std::int64_t first = 0;  ///< from 1; if it is 0, none fails
  bool all = false;        ///< whether those behind it fail, too
  std::string only = {};   ///< the name of a call; others succeed, and are not counted
};

/// Lets system calls fail with EIO while it exists, and counts them, in all threads: all that killing counts,
/// and open, openat, opendir, fcntl(F_DUPFD_CLOEXEC), close, fsync, ftruncate, flock and rmdir; fstatat if
/// `Faults::only` says so. What fails of a write is its second half.
class Failing {
 public:
  explicit Failing(Faults faults);
  ~Failing();
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
  /// How many there were.
  std::int64_t calls() const noexcept { return calls_; }
  /// The first that failed, with its path.
  std::string failed() const;
  /// Whether this call fails.
  bool takes(const char* call, const std::string& path);

 private:
  const Faults faults_;
  std::atomic<std::int64_t> calls_{0};
  mutable std::mutex mutex_;
  std::string failed_;
};

/// Called first by fsync. Returns 0, or the error with which fsync fails.
extern std::atomic<int (*)(int fd)> before_fsync;
/// Whether renameat2 knows no RENAME_EXCHANGE, as on some file systems.
extern std::atomic<bool> without_exchange;
/// Whether fsync does not wait, so that a test that calls it a thousand times ends soon.
extern std::atomic<bool> without_waiting;

}  // namespace torchtap_test
