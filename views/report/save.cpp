// Results in files.
#include <c10/util/Exception.h>

#include <algorithm>
#include <ostream>

#include <torchtap/storage/detail/disk.hpp>
#include <torchtap/storage/detail/write_file.hpp>
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

}  // namespace

void save(const Results& results, const std::string& path) {
  const std::string extension = extension_of(path);
  TORCH_CHECK_VALUE(extension == ".json" || extension == ".csv" || extension == ".html", "report::save: \"",
                    path, "\" should end in .json, .csv or .html.");
  const std::string text = extension == ".json"  ? json(results)
                           : extension == ".csv" ? csv(results)
                                                 : html(results);
  storage::detail::write_file("report::save", path, [&](std::ostream& file) { file << text; });
}

Results load(const std::string& path) {
  const auto file = storage::detail::InputFile::open("report::load", path);
  return detail::read_json(file.read_all(kLargest), "report::load: cannot read \"" + path + "\": ");
}

}  // namespace torchtap::views::report
