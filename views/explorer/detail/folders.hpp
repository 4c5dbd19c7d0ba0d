#pragma once

// Directories with runs.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {

/// The runs in directories; later ones appear, too, as an explorer watches further models.
class Folders {
 public:
  /// Throws `c10::ValueError` if there are no directories.
  explicit Folders(std::vector<std::string> directories);

  /// The runs of all directories. Throws as `FileRun` does, also for a directory without a run.
  Runs open();
  /// The runs that appeared since and can be read; possibly none.
  Runs appeared();

 private:
  std::vector<std::string> directories_;
  std::set<std::pair<std::string, std::int64_t>> known_;
};

}  // namespace torchtap::views::explorer::detail
