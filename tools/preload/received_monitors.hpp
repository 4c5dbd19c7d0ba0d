#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torchtap/views/monitor/extend/judge.hpp>
#include <torchtap/views/monitor/incident.hpp>

#include "config.hpp"
#include "program_area.hpp"

namespace torchtap::tools::preload {

/// Judges what processes tell of their models (`--monitor`), in a thread of its own, and writes alarms,
/// incidents and metrics.
class ReceivedMonitors {
 public:
  ReceivedMonitors(ProgramArea& area, const Config& config);
  ~ReceivedMonitors();
  ReceivedMonitors(const ReceivedMonitors&) = delete;
  ReceivedMonitors& operator=(const ReceivedMonitors&) = delete;

  /// Takes what has come from a process. `place` names its folder, and is called when its first model comes.
  void receive(const Report& report, const std::function<std::string()>& place);
  /// A process is gone: judges what it had published of unfinished windows, makes an incident of the last
  /// forwards if it was `left` so, and says in the report what there was.
  void end(Report& report, views::monitor::Left left);
  /// The thread ends, when all that came is judged; what comes later is judged at once.
  void stop_thread();

 private:
  struct Judged;
  struct Process {
    std::string place;
    std::vector<std::shared_ptr<Judged>> models;
    std::vector<std::string> notes;
    bool ended = false, is_damaged = false;
  };
  /// A reference that `--learn` wrote: of the first model, and beside it of the others.
  struct Learned {
    std::string place;
    std::set<std::pair<std::string, std::string>> modules;  // paths and types
  };

  void receive(Process& process, const Report& report, const std::function<std::string()>& place);
  std::shared_ptr<Judged> made(Process& process, const Report& report, std::string_view text);
  std::string reference_for(const Process& process, const views::monitor::extend::JudgedModel& model,
                            std::vector<std::string>& notes);
  std::string beside(const Process& process, const Report& report, const std::string& path,
                     std::size_t number) const;
  void run(const std::function<void()>& work);
  void ask(std::function<void()> work);
  void wait();

  ProgramArea& area_;
  const Config& config_;
  std::map<std::uint32_t, Process> processes_;
  std::optional<std::vector<Learned>> learned_;

  std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::set<std::string> failures_;
  bool busy_ = false, stops_ = false;
  std::thread thread_;
};

}  // namespace torchtap::tools::preload
