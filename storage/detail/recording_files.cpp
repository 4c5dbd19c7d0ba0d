// Parses the names of files in a recording.
#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <regex>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/detail/disk.hpp>
#include <torchtap/storage/detail/recording_files.hpp>

namespace torchtap::storage::detail {

std::string ShardName::stem() const {
  return slot.has_value() ? c10::str(entry, ".", *slot, "-", number) : c10::str(entry, "-", number);
}

std::optional<ShardName> parse_shard_name(const std::string& name) {
  static const std::regex form("([0-9]{1,15})(\\.([0-9]{1,15}))?-([0-9]{1,15})\\.(pt|part)");
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
  static const std::regex names(
      "manifest\\.json(\\.part)?|journal\\.jsonl|[0-9]+\\.pt|[0-9]+(\\.[0-9]+)?-[0-9]+\\.(pt|part|lost)");
  return std::regex_match(name, names);
}

bool is_spooling(const std::string& path) noexcept {
  const Descriptor fd(
      ::open((path + "/" + kJournal).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace torchtap::storage::detail
