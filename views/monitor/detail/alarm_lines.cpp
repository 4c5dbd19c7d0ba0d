// Writes lines of alarms.jsonl.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include <torchtap/base/disk.hpp>
#include <torchtap/views/monitor/detail/alarm_lines.hpp>

namespace torchtap::views::monitor::detail {

void append_line(const std::string& incidents, std::string line) {
  const std::string call = "views::monitor::Monitor", path = incidents + "/alarms.jsonl";
  const base::Descriptor file(
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) base::io_error(call, "open", path, errno);
  // The lock keeps other processes from writing behind a line that may have to be undone. It ends with the
  // descriptor.
  while (::flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  const off_t end = ::lseek(file.get(), 0, SEEK_END);
  char last = '\n';
  if (end > 0 && ::pread(file.get(), &last, 1, end - 1) == 1 && last != '\n') line.insert(0, 1, '\n');
  line += '\n';
  ssize_t written = 0;
  do written = ::write(file.get(), line.data(), line.size());
  while (written < 0 && errno == EINTR);
  if (written < 0) base::io_error(call, "write", path, errno);
  if (static_cast<std::size_t>(written) == line.size()) return;
  if (::ftruncate(file.get(), end) != 0) {
    // Then the next line begins with the end of this one.
  }
  base::io_error(call, "write", path, ENOSPC);
}

}  // namespace torchtap::views::monitor::detail
