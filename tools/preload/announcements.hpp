#pragma once

// Lines that processes leave to the launcher while the program runs.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace torchtap::tools::preload {

/// Leaves a line to the launcher, which prints it while the program runs. Each process leaves at most one;
/// without the launcher nothing happens.
void announce(const std::string& folder, std::int64_t process, const std::string& line) noexcept;

/// The lines that processes left in a folder.
class Announcements {
 public:
  explicit Announcements(std::string folder) : folder_(std::move(folder)) {}
  /// The lines that came since the last call.
  std::vector<std::string> fresh();

 private:
  std::string folder_;
  std::set<std::string> known_;
};

}  // namespace torchtap::tools::preload
