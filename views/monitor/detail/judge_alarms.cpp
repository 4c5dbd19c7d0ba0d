// Tells of alarms: callback, alarms.jsonl, incidents.
#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/extend/own_calls.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/views/monitor/detail/alarm_lines.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/judge.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>

namespace torchtap::views::monitor::detail {

/// Alarms that were raised or cleared at the same time.
void Judge::tell(std::vector<Alarm> changes) {
  std::map<std::string, std::vector<Alarm>> raised;
  for (const Alarm& alarm : changes) {
    if (alarm.raised) raised[alarm.finding.rule].push_back(alarm);
  }
  std::map<std::string, std::string> folders;
  for (const auto& [rule, alarms] : raised) {
    if (incidents_folder_.empty() || !may_write(rule)) continue;
    try {
      folders[rule] = write_incident_of(rule, alarms);
    } catch (const c10::Error& error) {
      ++lost_incidents_;
      note("no incident was written for " + rule + ": " + error.what_without_backtrace());
    }
  }
  std::function<void(const Alarm&)> callback;
  {
    const std::lock_guard lock(data_mutex_);
    for (Alarm& alarm : changes) {
      const rules::Finding& finding = alarm.finding;
      ever_raised_[{finding.path, finding.rule}] = false;
      if (!alarm.raised) continue;
      ++raised_;
      ++raised_by_rule_[finding.rule];
      const auto folder = folders.find(finding.rule);
      if (folder == folders.end()) continue;
      alarm.incident = folder->second;
      book_.set_incident(AlarmBook::key_of(finding), folder->second);
    }
    callback = callback_;
  }
  for (const Alarm& alarm : changes) {
    if (!incidents_folder_.empty()) {
      guarded([&] { write_line(to_json(alarm, model_.name)); });
    }
    if (!callback) continue;
    try {
      callback(alarm);
    } catch (const c10::Error& error) {
      note(std::string("on_alarm threw: ") + error.what_without_backtrace());
    } catch (const std::exception& error) {
      note(std::string("on_alarm threw: ") + error.what());
    } catch (...) {
      note("on_alarm threw an exception of another kind");
    }
  }
}

/// At most one a minute for each rule.
bool Judge::may_write(const std::string& rule) {
  const std::lock_guard lock(incident_mutex_);
  const std::int64_t now = clock_ns();
  const auto [at, is_new] = last_incident_.emplace(rule, now);
  if (!is_new && now - at->second < incident_gap_ns) return false;
  at->second = now;
  return true;
}

std::string Judge::write_incident_of(const std::string& reason, const std::vector<Alarm>& alarms) {
  // A recording of the whole program waits for this thread before it releases a model.
  const hooks::extend::OwnCalls own;
  IncidentContent content;
  content.reason = reason;
  content.model = model_.name;
  content.alarms = alarms;
  content.inputs = options_.inputs();
  content.reference = reference_;
  content.rules = options_.rules().text();
  // For modules that this object does not keep alive, as in programs that are not rebuilt: the model may be
  // destroyed before its last window is judged.
  std::vector<std::shared_ptr<const void>> keep;
  content.type = model_.modules.front().type;
  content.modules = subject_.living(keep);
  content.forwards = subject_.forwards();
  std::vector<storage::Entry> window;
  {
    const std::lock_guard lock(data_mutex_);
    content.digest = digest_;
    if (parameters_.forward >= 0 && !content.forwards.empty() &&
        content.forwards.front().number <= parameters_.forward) {
      content.parameters = std::exchange(parameters_, {});
    }
    window = last_window_;
    content.windows.assign(windows_lately_.begin(), windows_lately_.end());
  }
  content.training = !content.forwards.empty() && content.forwards.back().training;
  if (!window.empty()) {
    content.write_statistics = [&window](const std::string& folder) {
      storage::save(folder, window, storage::SaveOptions().mkdir(true));
    };
  }
  const std::lock_guard lock(incident_mutex_);
  std::string folder = write_incident(incidents_folder_, options_.keep_incidents(), content);
  ++incidents_;
  return folder;
}

std::string Judge::crashed(bool if_suspicious) {
  const std::vector<KeptForward> forwards = subject_.forwards();
  const bool is_suspicious = std::any_of(forwards.begin(), forwards.end(), [](const KeptForward& forward) {
    return !forward.returned || forward.outcome.nan + forward.outcome.inf != 0;
  });
  if (incidents_folder_.empty() || forwards.empty() || (if_suspicious && !is_suspicious)) return {};
  return write_incident_of("crash", {});
}

std::string Judge::capture(const std::string& reason) {
  TORCH_CHECK_VALUE(
      !incidents_folder_.empty(),
      "views::monitor::Monitor::capture: incidents need a folder; set MonitorOptions().incidents().");
  return write_incident_of(reason, alarms());
}

/// A line in alarms.jsonl.
void Judge::note(const std::string& text) noexcept {
  if (incidents_folder_.empty()) return;
  guarded([&] { write_line(note_line(text, model_.name, alarm_time_ns())); });
}

/// Lines that could not be written, on a full disk, say, are counted, and told once they can be.
void Judge::write_line(const std::string& line) noexcept {
  try {
    const std::int64_t untold = untold_losses_.load();
    append_line(incidents_folder_, line);
    if (untold == 0) return;
    append_line(incidents_folder_, note_line(std::to_string(untold) + (untold == 1 ? " line" : " lines") +
                                                 " before could not be written, and " +
                                                 std::to_string(lost_incidents_.load()) + " incidents in all",
                                             model_.name, alarm_time_ns()));
    untold_losses_ -= untold;
  } catch (...) {
    ++untold_losses_;
    ++lost_lines_;
    ++errors_;
  }
}

}  // namespace torchtap::views::monitor::detail
