// The lines that processes print at once.
#include "announcements.hpp"

#include <filesystem>
#include <fstream>

#include <torchtap/base/write_file.hpp>

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;

constexpr char kEnding[] = ".says";

}  // namespace

void announce(const std::string& folder, std::int64_t process, const std::string& line) noexcept {
  try {
    base::write_file(
        "preload", folder + "/" + std::to_string(process) + kEnding,
        [&](std::ostream& stream) { stream << line << '\n'; }, /*sync=*/false);
  } catch (const std::exception&) {
    // No process listens.
  }
}

std::vector<std::string> Announcements::fresh() {
  std::vector<std::string> lines;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    if (file.path().extension() != kEnding || !known_.insert(file.path().string()).second) continue;
    std::ifstream in(file.path());
    std::string line;
    if (std::getline(in, line)) lines.push_back(line);
  }
  return lines;
}

}  // namespace torchtap::tools::preload
