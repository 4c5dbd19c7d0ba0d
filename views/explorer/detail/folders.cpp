// Finds runs in directories.
#include <c10/util/Exception.h>

#include <torchtap/views/explorer/detail/file_run.hpp>
#include <torchtap/views/explorer/detail/folders.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::size_t columns = 256;
constexpr std::int64_t memory = std::int64_t{256} << 20;

}  // namespace

Folders::Folders(std::vector<std::string> directories) : directories_(std::move(directories)) {
  TORCH_CHECK_VALUE(!directories_.empty(),
                    "views::explorer: there is nothing to show; pass at least one "
                    "directory that ExplorerOptions().save() named.");
}

Runs Folders::open() {
  Runs runs;
  for (const std::string& directory : directories_) {
    std::vector<std::int64_t> numbers = runs_in(directory);
    if (numbers.empty()) numbers.push_back(1);  // which says what is missing
    for (const std::int64_t number : numbers) {
      runs.push_back(std::make_shared<FileRun>(directory, columns, memory, number));
      known_.emplace(directory, number);
    }
  }
  return runs;
}

Runs Folders::appeared() {
  Runs runs;
  for (const std::string& directory : directories_) {
    for (const std::int64_t number : runs_in(directory)) {
      if (known_.count({directory, number}) != 0) continue;
      try {
        runs.push_back(std::make_shared<FileRun>(directory, columns, memory, number));
        known_.emplace(directory, number);
      } catch (const c10::Error&) {
        // It may be read when more of it was written.
      }
    }
  }
  return runs;
}

}  // namespace torchtap::views::explorer::detail
