#include "process_report.hpp"

#include <c10/util/Exception.h>
#include <cereal/archives/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <torchtap/base/write_file.hpp>

namespace torchtap::tools::preload {
namespace {

constexpr char kFileEnding[] = ".json";

std::string file_of(const std::string& folder, std::int64_t process) {
  return folder + "/" + std::to_string(process) + kFileEnding;
}

}  // namespace

bool write(const Report& report, const std::string& folder) noexcept {
  try {
    base::write_file(
        "preload", file_of(folder, report.process),
        [&](std::ostream& stream) {
          cereal::JSONOutputArchive archive(stream);
          const_cast<Report&>(report).serialize(archive);
        },
        /*sync=*/false);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Report read_report(const std::string& folder, std::int64_t process) noexcept {
  Report report;
  try {
    std::ifstream stream(file_of(folder, process));
    if (!stream) return {};
    cereal::JSONInputArchive archive(stream);
    report.serialize(archive);
  } catch (const std::exception&) {
    return {};
  }
  return report;
}

std::string own_place(Report& report, const Config& config) {
  const Report earlier = read_report(config.reports, report.process);
  const bool became_another = earlier.attached && !earlier.ended;
  if (became_another) {
    report.notes.push_back("the process became another program (exec); what it had recorded before is in " +
                           earlier.directory + ".");
  }
  if (report.process == config.process && !became_another) return config.save;
  const std::string base = config.save + "-" + std::to_string(report.process);
  std::string place = base;
  for (int i = 2; std::filesystem::exists(place); ++i) place = base + "-" + std::to_string(i);
  return place;
}

void check_still_free(const std::string& place, bool overwrite) {
  std::error_code error;
  TORCH_CHECK_VALUE(
      overwrite || !std::filesystem::exists(place, error) || base::written_in_place(place) ||
          (std::filesystem::is_directory(place, error) && std::filesystem::is_empty(place, error)),
      "\"", place, "\" already exists; --overwrite replaces it.");
}

std::vector<Report> read_reports(const std::string& folder) {
  std::vector<Report> reports;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
    if (file.path().extension() != kFileEnding) continue;
    Report report = read_report(folder, std::strtoll(file.path().stem().c_str(), nullptr, 10));
    if (report.process == 0) continue;
    std::filesystem::path another = file.path();
    report.became_another = std::filesystem::exists(another.replace_extension(kBecameAnother), error);
    reports.push_back(std::move(report));
  }
  std::sort(reports.begin(), reports.end(),
            [](const Report& a, const Report& b) { return a.process < b.process; });
  return reports;
}

}  // namespace torchtap::tools::preload
