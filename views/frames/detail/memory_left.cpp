// Reads /proc/meminfo and the files of memory cgroups.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <torchtap/views/frames/detail/memory_left.hpp>

namespace torchtap::views::frames::detail {
namespace {

/// The number behind `key`, or the first of the file without a key.
std::optional<std::uint64_t> number_in(const std::string& path, const std::string& key = {}) {
  std::ifstream file(path);
  std::string word;
  while (!key.empty() && word != key && file >> word) {
  }
  if (!(file >> word) || word.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::strtoull(word.c_str(), nullptr, 10);
}

/// The names of the files of one version of cgroups.
struct Files {
  const char *limit, *usage, *cache;
};
constexpr Files kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};
constexpr Files kVersion2{"/memory.max", "/memory.current", "inactive_file"};

/// The memory that a cgroup leaves. Its cache of files is given back when memory is needed.
void look_at(const std::string& folder, const Files& files, MemoryLeft& left) {
  const auto limit = number_in(folder + files.limit);  // "max" is no number
  const auto usage = number_in(folder + files.usage);
  if (!limit.has_value() || !usage.has_value()) return;
  const std::uint64_t cache = number_in(folder + "/memory.stat", files.cache).value_or(0);
  const std::uint64_t used = *usage - std::min(cache, *usage);
  const std::uint64_t bytes = *limit - std::min(used, *limit);
  if (bytes < left.bytes) left = {bytes, "the memory cgroup " + folder};
}

bool begins_with(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

/// The path of this process in the hierarchy whose line in /proc/self/cgroup says so: "4:memory:/a/b" for
/// version 1, "0::/a/b" for 2.
std::string path_of(const std::string& root, bool first_version) {
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    const std::size_t second = line.find(':', colon + 1);
    if (colon == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(colon + 1, second - colon - 1) + ",";
    const bool is_it =
        first_version ? controllers.find(",memory,") != std::string::npos : begins_with(line, "0::");
    if (is_it) return line.substr(second + 1);
  }
  return {};
}

/// Looks at the cgroups of one mount, from this process's to the outermost that can be seen. The mount shows
/// the part of the hierarchy below `inside`.
void look_at_mount(const std::string& root, const std::string& mount, const std::string& inside,
                   std::string path, const Files& files, MemoryLeft& left) {
  const std::string above = inside == "/" ? "" : inside;
  path = begins_with(path + "/", above + "/") ? path.substr(above.size()) : "";
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    look_at(root + mount + path, files, left);
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

}  // namespace

MemoryLeft memory_left(const std::string& root) {
  MemoryLeft left;
  if (const auto kilobytes = number_in(root + "/proc/meminfo", "MemAvailable:"))
    left = {*kilobytes << 10, "the system"};
  // "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
  std::ifstream lines(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line);
    std::istringstream behind(line.substr(dash + 3));
    std::string skipped, inside, mount, type, options;
    before >> skipped >> skipped >> skipped >> inside >> mount;
    behind >> type >> skipped >> options;
    const bool first_version =
        type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos;
    if (!first_version && type != "cgroup2") continue;
    look_at_mount(root, mount, inside, path_of(root, first_version), first_version ? kVersion1 : kVersion2,
                  left);
  }
  return left;
}

}  // namespace torchtap::views::frames::detail
