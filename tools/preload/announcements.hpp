#pragma once

// Lines that processes leave to the launcher while the program runs.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace torchtap::tools::preload {

/// Leaves a line to the launcher, which prints it while the program runs. One for each process; without the
/// launcher nothing happens.
void announce(const std::string& folder, std::int64_t process, const std::string& line) noexcept;

/// The lines that processes left in a folder.
class Announcements {
 public:
  explicit Announcements(std::string folder) : folder_(std::move(folder)) {}
  /// Those that came since the last call.
  std::vector<std::string> fresh();

 private:
  std::string folder_;
  std::set<std::string> known_;
};

}  // namespace torchtap::tools::preload
