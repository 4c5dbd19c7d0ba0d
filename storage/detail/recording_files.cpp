// Parses the names of files in a recording.
#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <regex>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/recording_files.hpp>

namespace torchtap::storage::detail {

std::string ShardName::stem() const {
  // As digits alone, which streams would group in the user's locale.
  return std::to_string(entry) + (slot.has_value() ? "." + std::to_string(*slot) : "") + "-" +
         std::to_string(number);
}

std::optional<ShardName> parse_shard_name(const std::string& name) {
  // Never destroyed: threads may save while the program ends.
  static const std::regex& form =
      *new const std::regex("([0-9]{1,15})(\\.([0-9]{1,15}))?-([0-9]{1,15})\\.(pt|part)");
  std::smatch match;
  if (!std::regex_match(name, match, form)) return std::nullopt;
  ShardName parts;
  parts.entry = std::stoll(match[1]);
  if (match[3].matched) parts.slot = std::stoll(match[3]);
  parts.number = std::stoll(match[4]);
  return parts;
}

bool is_part(const std::string& name) {
  return name.size() > 5 && name.compare(name.size() - 5, 5, ".part") == 0;
}

bool is_recording_file(const std::string& name) {
  // Never destroyed: threads may save while the program ends.
  static const std::regex& names = *new const std::regex(
      "manifest\\.json(\\.part)?|journal\\.jsonl|[0-9]+\\.pt|[0-9]+(\\.[0-9]+)?-[0-9]+\\.(pt|part|lost)");
  return std::regex_match(name, names);
}

namespace {

/// Nothing if another process holds a lock that excludes this one.
std::optional<RecordingLock> locked(const std::string& path, int how) noexcept {
  const auto lock = [&](const char* name, base::Descriptor& fd) {
    fd =
        base::Descriptor(::open((path + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    return !fd.valid() || ::flock(fd.get(), how | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  };
  RecordingLock taken;
  if (!lock(kJournal, taken.journal) || !lock(kManifest, taken.manifest)) return std::nullopt;
  return taken;
}

}  // namespace

std::optional<RecordingLock> lock_recording(const std::string& path) noexcept {
  auto taken = locked(path, LOCK_EX);
  // `is_spooling` holds its lock for a moment.
  for (int attempt = 0; !taken.has_value() && attempt < 50; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    taken = locked(path, LOCK_EX);
  }
  return taken;
}

bool is_spooling(const std::string& path) noexcept {
  return !locked(path, LOCK_SH).has_value();
}

}  // namespace torchtap::storage::detail
