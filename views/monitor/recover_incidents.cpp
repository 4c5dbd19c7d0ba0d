// Makes incidents of the rings that killed processes left.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/read_ring.hpp>
#include <torchtap/views/monitor/incident.hpp>

namespace torchtap::views::monitor {
namespace {

/// Opens and locks a file of this user; nothing if a process has it locked, or if it is another user's or no
/// regular file.
std::optional<base::Descriptor> locked(const std::string& path) {
  base::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return std::nullopt;
  // Another recovery may have removed it between the two.
  struct stat now {};
  if (::lstat(path.c_str(), &now) != 0 || now.st_ino != status.st_ino) return std::nullopt;
  return file;
}

std::string bytes_of(const std::string& path) {
  return base::InputFile::open("views::monitor::recover_incidents", path)
      .read_all(detail::kMostRing + frames::kDataOffset);
}

/// Makes an incident of a ring that no process has open, unless the file is no ring or is empty. Whether the
/// file can go.
bool recover_ring(const std::string& path, const std::string& incidents, std::int64_t keep, Left left,
                  std::vector<std::string>& made) {
  detail::RingContent ring;
  try {
    ring = detail::read_ring(bytes_of(path), path);
  } catch (const c10::ValueError&) {
    return true;
  }
  if (ring.newer) return false;
  if ((ring.forwards.empty() && ring.windows.empty()) || left == Left::none) return true;
  const bool is_suspicious =
      std::any_of(ring.forwards.begin(), ring.forwards.end(), [](const detail::KeptForward& forward) {
        return !forward.returned || forward.outcome.nan + forward.outcome.inf != 0;
      });
  if (left == Left::suspicious && !is_suspicious) return true;
  detail::IncidentContent content;
  content.reason = "crash";
  content.model = ring.model;
  content.windows = std::move(ring.windows);
  for (const detail::KeptForward& forward : ring.forwards) content.training = forward.training;
  content.forwards = std::move(ring.forwards);
  made.push_back(detail::write_incident(incidents, keep, content));
  return true;
}

/// Files that a process was killed while making.
void remove_unfinished(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(".ring-", 0) != 0) continue;
    const auto time = entry.last_write_time(error);
    if (error || std::filesystem::file_time_type::clock::now() - time < std::chrono::minutes(1)) continue;
    if (locked(entry.path().string()).has_value()) ::unlink(entry.path().c_str());
  }
}

}  // namespace

std::vector<std::string> recover_incidents(const std::string& incidents, std::int64_t keep, Left left) {
  std::error_code error;
  TORCH_CHECK_VALUE(std::filesystem::is_directory(incidents, error), "views::monitor::recover_incidents: \"",
                    incidents, "\" is no folder.");
  std::vector<std::string> made;
  remove_unfinished(incidents);
  for (const std::string& name : detail::ring_names(incidents)) {
    const std::string path = incidents + "/" + name;
    const auto file = locked(path);
    if (!file.has_value()) continue;  // its process lives
    char begin[4096];
    const ssize_t size = ::pread(file->get(), begin, sizeof begin, 0);
    bool done = true;
    if (size > 0 && begin[0] == '/') {  // it says where the ring is
      const std::string ring(begin, static_cast<std::size_t>(size));
      const std::size_t slash = ring.rfind('/');
      if (ring.compare(slash + 1, 5, "ring-") == 0) {
        remove_unfinished(ring.substr(0, slash));
        if (const auto there = locked(ring); there.has_value()) {
          done = recover_ring(ring, incidents, keep, left, made);
          if (done) ::unlink(ring.c_str());
        }
      }
    } else {
      done = recover_ring(path, incidents, keep, left, made);
    }
    if (done) ::unlink(path.c_str());
  }
  return made;
}

}  // namespace torchtap::views::monitor
