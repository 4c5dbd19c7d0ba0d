// Calls fsync for many files in parallel.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/storage/detail/sync_queue.hpp>

namespace torchtap::storage::detail {
namespace {

constexpr std::size_t kMostFiles = 256;
// fsync of one file after the other flushes the disk's cache for each; in parallel, they share a flush.
constexpr std::size_t kThreads = 16;

/// How many files may stay open: a fraction of the process's limit.
std::size_t most_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMostFiles;
  return std::clamp<std::size_t>(static_cast<std::size_t>(limit.rlim_cur) / 8, 1, kMostFiles);
}

int sync(int fd) noexcept {
  while (::fsync(fd) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

SyncQueue::SyncQueue(std::string call, bool sync)
    : call_(std::move(call)), sync_(sync), most_(most_files()) {}

base::OutputFile SyncQueue::create(const base::Staging& staging, const std::string& name) {
  if (waiting_.empty()) return staging.create(name);
  try {
    return staging.create(name);
  } catch (const c10::Error&) {
    wait();
    return staging.create(name);
  }
}

void SyncQueue::add(base::OutputFile file) {
  if (!sync_) return file.close(/*sync=*/false);
  Waiting next;
  next.fd = file.finish();
  next.path = file.path();
#ifdef SYNC_FILE_RANGE_WRITE  // a hint that Linux takes; fsync reports errors
  ::sync_file_range(next.fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
#endif
  waiting_.push_back(std::move(next));
  if (waiting_.size() >= most_) wait();
}

void SyncQueue::wait() {
  const std::vector<Waiting> files = std::move(waiting_);
  waiting_.clear();
  std::vector<int> errors(files.size(), 0);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < files.size();) errors[i] = sync(files[i].fd.get());
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  try {
    while (threads.size() + 1 < std::min(kThreads, files.size()))
      threads.push_back(base::start_thread("torchtap-sync", work));
  } catch (const std::exception&) {  // no more threads or memory: use fewer
  }
  work();
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (errors[i] != 0) base::io_error(call_, "fsync", files[i].path, errors[i]);
  }
}

}  // namespace torchtap::storage::detail
