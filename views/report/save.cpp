// Measurements in files.
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/write_file.hpp>
#include <torchtap/views/report/detail/read_json.hpp>
#include <torchtap/views/report/save.hpp>

namespace torchtap::views::report {
namespace {

constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;

/// In lower case, with its dot; "" if there is none.
std::string extension_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const bool has = dot != std::string::npos && path.find('/', dot) == std::string::npos;
  std::string extension = has ? path.substr(dot) : "";
  std::transform(extension.begin(), extension.end(), extension.begin(), [](char letter) {
    return 'A' <= letter && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return extension;
}

/// The extension, if it is a known one.
std::string known_extension(const char* call, const std::string& path) {
  std::string extension = extension_of(path);
  TORCH_CHECK_VALUE(extension == ".json" || extension == ".csv" || extension == ".html", call, ": \"", path,
                    "\" should end in .json, .csv or .html.");
  return extension;
}

}  // namespace

void check_path(const std::string& path) {
  known_extension("views::report::check_path", path);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  TORCH_CHECK_VALUE(folder.empty() || std::filesystem::is_directory(folder),
                    "views::report::check_path: the directory \"", folder,
                    "\" does not exist. Create it first.");
  TORCH_CHECK_VALUE(!std::filesystem::is_directory(path), "views::report::check_path: \"", path,
                    "\" is a directory.");
}

void save(const Measurements& results, const std::string& path) {
  const std::string extension = known_extension("views::report::save", path);
  const std::string text = extension == ".json"  ? json(results)
                           : extension == ".csv" ? csv(results)
                                                 : html(results);
  base::write_file("views::report::save", path, [&](std::ostream& file) { file << text; });
}

Measurements load(const std::string& path) {
  const auto file = base::InputFile::open("views::report::load", path);
  return detail::read_json(file.read_all(kLargest), "views::report::load: cannot read \"" + path + "\": ");
}

}  // namespace torchtap::views::report
