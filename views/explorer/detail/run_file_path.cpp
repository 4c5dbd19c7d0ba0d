// Chooses the places of the files of runs.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include <torchtap/views/explorer/detail/run_file.hpp>

namespace torchtap::views::explorer::detail {
namespace {

namespace fs = std::filesystem;

fs::path folder(const std::string& directory) {
  return fs::path(directory) / "explorer";
}

/// 1 of "run.tapx", 2 of "run-2.tapx"; 0 of any other name.
std::int64_t number_of(const std::string& name) {
  const std::string begin = "run", end = ".tapx";
  if (name == begin + end) return 1;
  if (name.size() <= begin.size() + 1 + end.size() || name.compare(0, begin.size() + 1, begin + "-") != 0 ||
      name.compare(name.size() - end.size(), end.size(), end) != 0) {
    return 0;
  }
  std::int64_t number = 0;
  const char* const last = name.data() + name.size() - end.size();
  const auto [stop, error] = std::from_chars(name.data() + begin.size() + 1, last, number);
  return error == std::errc() && stop == last && number > 1 ? number : 0;
}

}  // namespace

std::string run_file_path(const std::string& directory, std::int64_t number) {
  const std::string suffix = number == 1 ? "" : "-" + std::to_string(number);
  return (folder(directory) / ("run" + suffix + ".tapx")).string();
}

std::vector<std::int64_t> runs_in(const std::string& directory) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  fs::directory_iterator file(folder(directory), error);
  for (; !error && file != fs::directory_iterator(); file.increment(error)) {
    const std::int64_t number = number_of(file->path().filename().string());
    if (number > 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace torchtap::views::explorer::detail
