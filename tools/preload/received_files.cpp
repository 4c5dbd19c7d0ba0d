#include "received_files.hpp"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <torchtap/base/no_pipe_signal.hpp>

#ifdef TORCHTAP_HAVE_EXPLORER
#include <torchtap/views/explorer/extend/run_file.hpp>
#endif

#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostWaiting = std::size_t{1} << 20;

}  // namespace

void ReceivedFiles::receive(std::uint32_t number, bool gone, const std::function<std::string()>& place) {
  Process& process = processes_[number];
  try {
    for (File& file : process.files) write(file, gone);
    const auto waits = [](const File& file) { return file.waits.size() > kMostWaiting; };
    if (!gone && std::any_of(process.files.begin(), process.files.end(), waits)) return;
    area_.receive(number, gone, [&](std::uint32_t index, bool is_name, std::string_view bytes) {
      if (is_name && process.place.empty()) process.place = place();
      if (index >= process.files.size()) process.files.resize(index + std::size_t{1});
      File& file = process.files[index];
      const std::string text(bytes.data(), bytes.size());
      if (is_name) {
        file.path = text.empty() ? process.place : process.place + "/" + text;
      } else if (process.failure.empty()) {
        file.waits += text;
        write(file, gone);
      }
    });
  } catch (const std::exception& error) {
    if (process.failure.empty()) process.failure = tools::message_of(error);
    for (File& file : process.files) file.waits.clear();
  }
}

/// False if it is a pipe that nobody reads yet.
bool ReceivedFiles::open(File& file) const {
  const fs::path folder = fs::path(file.path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  const bool is_file = !fs::exists(file.path, error) || fs::is_regular_file(file.path, error);
  const int flags = is_file ? O_CREAT | O_APPEND | O_TRUNC : O_NONBLOCK;
  file.open = base::Descriptor(::open(file.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0666));
  if (!file.open.valid() && errno == ENXIO && !is_file) return false;
  if (!file.open.valid()) base::io_error("torchtap preload", "write", file.path, errno);
  ::flock(file.open.get(), LOCK_EX | LOCK_NB);  // tells readers that the run continues
  return true;
}

void ReceivedFiles::write(File& file, bool gone) {
  if (file.waits.empty()) return;
  if (!file.open.valid() && !open(file)) {
    if (gone) base::io_error("torchtap preload", "write", file.path, ENXIO);
    return;
  }
  const base::NoPipeSignal ignored;
  std::size_t done = 0;
  while (done < file.waits.size()) {
    const ssize_t size = ::write(file.open.get(), file.waits.data() + done, file.waits.size() - done);
    if (size >= 0) {
      done += static_cast<std::size_t>(size);
    } else if (errno == EAGAIN && gone) {
      pollfd room{file.open.get(), POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      base::io_error("torchtap preload", "write", file.path, errno);
    }
  }
  file.waits.erase(0, done);
  file.size += done;
#ifdef TORCHTAP_HAVE_EXPLORER
  // Of a run that nobody asked to keep, the page shows less detail of long ago.
  constexpr std::uint64_t kMost = std::uint64_t{512} << 20;
  if (config_.mode == "explore" && config_.save.empty() && file.size > kMost)
    file.open = base::Descriptor(views::explorer::extend::thin(file.path, kMost, file.size));
#endif
}

}  // namespace torchtap::tools::preload
