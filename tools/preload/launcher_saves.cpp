#include "launcher_saves.hpp"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include <torchtap/storage/save.hpp>
#include <torchtap/views/report/save.hpp>

#include "packed_entries.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;

/// "insight.json"; of process 3 "insight-process3.json"; of its second model "insight-process3-2.json".
std::string file_of(const std::string& place, const std::string& save, std::size_t model) {
  const fs::path path = save;
  std::string name = path.stem().string() + place.substr(save.size());
  if (model > 0) name += "-" + std::to_string(model + 1);
  return (path.parent_path() / (name + path.extension().string())).string();
}

std::int64_t samples_of(const std::vector<storage::Entry>& entries) {
  return std::accumulate(entries.begin(), entries.end(), std::int64_t{0},
                         [](std::int64_t sum, const storage::Entry& entry) { return sum + entry.samples; });
}

}  // namespace

bool Saver::publishes(const Config& config) {
  return !config.save.empty() && (config.mode == "record" || config.mode == "trace" ||
                                  config.mode == "report" || config.mode == "learn");
}

/// Files of which nobody said where they belong are there for the page.
std::string Saver::place_of_files(const Report& report) {
  if (!config_.save.empty())
    return place(report.number, report.is_program && !std::exchange(first_received_, true));
  if (for_now_.empty()) {
    const char* const given = std::getenv("TMPDIR");
    for (const std::string& folder :
         {std::string(given == nullptr ? "" : given), std::string("/tmp"), std::string("/dev/shm")}) {
      for_now_ = folder + "/torchtap-XXXXXX";
      if (!folder.empty() && ::mkdtemp(for_now_.data()) != nullptr) break;
      for_now_.clear();
    }
    TORCH_CHECK(!for_now_.empty(), "there is no folder for temporary files; set TMPDIR.");
  }
  return for_now_ + "/" + std::to_string(report.number);
}

void Saver::receive(std::vector<Report>& reports) {
  for (const Report& report : reports)
    if (monitors_.has_value()) monitors_->receive(report, [&] { return place_of_files(report); });
  for (Report& report : reports)
    if (streams_.has_value()) streams_->receive(report);
  if (!ReceivedFiles::has(config_)) return;
  for (Report& report : reports) {
    files_.receive(report.number, report.gone, [&] { return place_of_files(report); });
    if (!config_.save.empty()) report.directory = files_.place(report.number);
    if (const std::string& failure = files_.failure(report.number); !failure.empty()) {
      report.notes.push_back(failure);
      report.lost = true;
    }
  }
}

void Saver::judge(std::vector<Report>& reports,
                  const std::function<views::monitor::Left(const Report&)>& left) {
  for (Report& report : reports)
    if (monitors_.has_value() && report.attached) monitors_->end(report, left(report));
}

void Saver::clean_up() {
  if (config_.save.empty()) area_.close();
  std::error_code error;
  if (!for_now_.empty()) fs::remove_all(for_now_, error);
}

void Saver::save(std::vector<Report>& reports) {
  if (!publishes(config_)) return;
  const bool alone =
      std::count_if(reports.begin(), reports.end(), [](const Report& one) { return one.attached; }) == 1;
  bool first = true;
  for (Report& report : reports) {
    if (!report.attached) continue;
    const bool is_first = report.is_program && std::exchange(first, false);
    const std::string place = this->place(report.number, is_first || (alone && report.gone));
    if (report.gone) {
      save(report, place);
    } else {
      report.directory = config_.mode == "report" ? file_of(place, config_.save, 0) : place;
    }
  }
}

void Saver::save(Report& report, const std::string& place) {
  try {
    if (config_.mode == "report") {
      save_reports(report, place);
    } else if (config_.mode == "learn") {
      save_references(report, place);
    } else {
      save_recording(report, place);
    }
  } catch (const std::exception& error) {
    report.directory.clear();
    report.notes.push_back("the " +
                           std::string(config_.mode == "record"  ? "recording"
                                       : config_.mode == "learn" ? "reference"
                                                                 : config_.mode) +
                           " could not be saved: " + tools::message_of(error));
    report.lost = true;
  }
}

bool Saver::was_saved(const std::string& place) const {
  return std::any_of(places_.begin(), places_.end(), [&](const auto& one) { return one.second == place; });
}

// Of the first place the launcher has asked before the program began.
std::string Saver::place(std::uint32_t number, bool first) const {
  const std::string place = place_of(config_.save, number, first);
  if (first || config_.overwrite) return place;
  return free_place(place, [&](const std::string& one) {
    return !was_saved(one) && fs::exists(config_.mode == "report" ? file_of(one, config_.save, 0) : one);
  });
}

void Saver::save_recording(Report& report, const std::string& place) {
  const std::string published = area_.result_of(report.number);
  std::vector<storage::Entry> entries;
  if (!published.empty()) entries = unpack(published);
  for (const std::string& part : area_.parts_of(report.number))
    if (!part.empty()) entries.push_back(unpack(part).front());
  if (config_.mode == "record" && config_.reduce.empty()) {
    const std::int64_t published = samples_of(entries);
    area_.add_kept(report.number, entries);
    report.missing = std::max<std::int64_t>(0, report.missing - (samples_of(entries) - published));
  }
  if (entries.empty()) return;
  std::string& former = places_[report.number];
  if (!former.empty() && former != place) fs::remove_all(former);
  storage::save(place, entries,
                storage::SaveOptions().mkdir(true).overwrite(config_.overwrite || was_saved(place)));
  former = report.directory = place;
  if (config_.mode == "trace") return;  // it has counted
  report.samples = samples_of(entries);
  report.modules =
      std::count_if(entries.begin(), entries.end(), [](const auto& one) { return one.samples > 0; });
}

void Saver::save_reports(Report& report, const std::string& place) {
  std::vector<storage::Entry> models;
  for (const std::string& part : area_.parts_of(report.number))
    if (!part.empty()) models.push_back(unpack(part).front());
  report.samples = 0;
  const bool is_new = places_.count(report.number) == 0;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string file = file_of(place, config_.save, i);
    try {
      if (is_new) check_still_free(file, config_.overwrite);
      views::report::save(views::report::from_json(models[i].value.text()), file);
    } catch (const std::exception& error) {
      report.notes.push_back("the report of " + models[i].type +
                             " could not be saved: " + tools::message_of(error));
      report.lost = true;
      continue;
    }
    report.samples += models[i].samples;
    if (i == 0) {
      report.directory = file;
    } else {
      report.notes.push_back(c10::str(file, " is the report of another model, ", models[i].type, "."));
    }
  }
  places_[report.number] = place;
}

/// A part is the reference of a model; its first entry has the model's name.
void Saver::save_references(Report& report, const std::string& place) {
  const std::vector<std::string> parts = area_.parts_of(report.number);
  const bool is_new = places_.count(report.number) == 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    std::vector<storage::Entry> entries = unpack(parts[i]);
    const std::string name = entries.front().type;
    entries.erase(entries.begin());
    const std::string folder = i == 0 ? place : place + "-" + std::to_string(i + 1);
    try {
      if (is_new) check_still_free(folder, config_.overwrite);
      storage::save(folder, entries, storage::SaveOptions().mkdir(true).overwrite(true));
    } catch (const std::exception& error) {
      report.notes.push_back("the reference of " + name + " could not be saved: " + tools::message_of(error));
      report.lost = true;
      continue;
    }
    report.directory = place;
    if (i != 0) report.notes.push_back(folder + " is the reference of another model, " + name + ".");
  }
  places_[report.number] = place;
}

void Saver::save_so_far() {
  std::vector<Report> reports = area_.reports();
  for (Report& report : reports) report.gone = true;
  save(reports);
}

void Saver::save_later(const std::vector<Report>& reports) {
  std::set<std::uint32_t> running;
  for (const Report& report : reports)
    if (report.attached && !report.gone) running.insert(report.number);
  if (config_.save.empty() || running.empty()) return;
  if (monitors_.has_value()) monitors_->stop_thread();  // which a child would not have
  if (::fork() != 0) return;
  ::setsid();
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int file = 0; file < 3; ++file) ::dup2(nowhere, file);
  while (!running.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<Report> now = area_.reports();
    receive(now);
    for (Report& report : now) {
      if (!report.gone || running.erase(report.number) == 0) continue;
      if (monitors_.has_value()) monitors_->end(report, views::monitor::Left::suspicious);
      if (publishes(config_)) save(report, place(report.number, false));
    }
  }
  std::_Exit(0);
}

}  // namespace torchtap::tools::preload
