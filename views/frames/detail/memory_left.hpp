#pragma once

// The memory that this process may still take before the system kills a process for it.

#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::views::frames::detail {

struct MemoryLeft {
  std::uint64_t bytes = UINT64_MAX;
  std::string of;  // what sets the limit, for a sentence: the system, or a cgroup's folder
};

/// The least of the system's free memory and the rests of this process's memory cgroups (version 1 and 2, and
/// the cgroups around them). A file that cannot be read sets no limit. `root` is in front of /proc and /sys;
/// for tests.
TORCHTAP_API MemoryLeft memory_left(const std::string& root = "");

}  // namespace torchtap::views::frames::detail
