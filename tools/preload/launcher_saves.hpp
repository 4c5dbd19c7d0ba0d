#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config.hpp"
#include "process_report.hpp"
#include "program_area.hpp"
#include "received_files.hpp"
#include "received_monitors.hpp"
#include "received_streams.hpp"

namespace torchtap::tools::preload {

/// Writes what processes published or handed over to files, by the launcher's rights and on its disk.
class Saver {
 public:
  Saver(ProgramArea& area, const Config& config) : area_(area), config_(config), files_(area, config) {
    if (config.mode == "monitor") monitors_.emplace(area, config);
    if (!config.stream.empty()) streams_.emplace(area, config);
  }

  /// Whether processes publish their results in this mode; in others they hand over, or write, files.
  static bool publishes(const Config& config);
  /// Writes what processes handed over for files since the last call, and says in their reports where.
  void receive(std::vector<Report>& reports);
  /// The streams of processes, or null.
  ReceivedStreams* streams() { return streams_.has_value() ? &*streams_ : nullptr; }
  /// The folder of a process whose files are received; empty if there were none.
  const std::string& folder(std::uint32_t number) { return files_.place(number); }
  /// Saves the results of processes that are gone, and says in their reports what it was, and where. The only
  /// result of all has the place that was asked for. Says of processes that run where their results will be.
  void save(std::vector<Report>& reports);
  /// Of processes that are gone: judges what their monitors told last. `left` says how a process ended.
  void judge(std::vector<Report>& reports, const std::function<views::monitor::Left(const Report&)>& left);
  /// Saves what there is so far, also of processes that run.
  void save_so_far();
  /// Saves the results of these processes when they end, in a process of its own, as the launcher ends.
  void save_later(const std::vector<Report>& reports);
  /// Removes what was written for the time of the program alone.
  void clean_up();

 private:
  /// Where a process's results belong: `first` has the place that was asked for.
  std::string place(std::uint32_t number, bool first) const;
  std::string place_of_files(const Report& report);
  bool was_saved(const std::string& place) const;
  void save(Report& report, const std::string& place);
  void save_recording(Report& report, const std::string& place);
  void save_reports(Report& report, const std::string& place);
  void save_references(Report& report, const std::string& place);

  ProgramArea& area_;
  const Config& config_;
  ReceivedFiles files_;
  std::optional<ReceivedMonitors> monitors_;
  std::optional<ReceivedStreams> streams_;
  bool first_received_ = false;
  std::string for_now_;                          // the folder of files that nobody asked to keep
  std::map<std::uint32_t, std::string> places_;  // of processes whose results were saved
};

}  // namespace torchtap::tools::preload
