// Tells of alarms: callback, alarms.jsonl, incidents, metrics.
#include <torch/version.h>

#include <chrono>
#include <sstream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/extend/own_calls.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/monitor/detail/alarm_lines.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/prometheus_text.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>

namespace torchtap::views::monitor::detail {
namespace {

std::int64_t alarm_time_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Alarm Watcher::alarm_of(rules::Finding finding, std::int64_t window) const {
  Alarm alarm;
  alarm.finding = std::move(finding);
  alarm.time_ns = alarm_time_ns();
  alarm.forward = forwards_.load(std::memory_order_relaxed) - 1;
  alarm.window = window;
  return alarm;
}

/// Alarms that were raised or cleared at the same time.
void Watcher::tell(std::vector<Alarm> changes) {
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
      guarded([&] { write_line(to_json(alarm, options_.model())); });
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
bool Watcher::may_write(const std::string& rule) {
  const std::lock_guard lock(incident_mutex_);
  const std::int64_t now = clock_ns();
  const auto [at, is_new] = last_incident_.emplace(rule, now);
  if (!is_new && now - at->second < incident_gap_ns) return false;
  at->second = now;
  return true;
}

std::string Watcher::write_incident_of(const std::string& reason, const std::vector<Alarm>& alarms) {
  // A recording of the whole program waits for this thread before it releases a model.
  const hooks::extend::OwnCalls own;
  IncidentContent content;
  content.reason = reason;
  content.model = options_.model();
  content.alarms = alarms;
  content.inputs = options_.inputs();
  content.reference = reference_;
  content.rules = options_.rules().text();
  // For modules that this object does not keep alive, as in programs that are not rebuilt: the model may be
  // destroyed before its last window is judged.
  std::vector<std::shared_ptr<const void>> keep;
  content.type = modules_.front().type();
  content.modules = living(keep);
  std::vector<storage::Entry> window;
  {
    const std::lock_guard lock(data_mutex_);
    if (ring_ != nullptr) content.forwards = ring_->forwards();
    if (parameters_of_ >= 0 && !content.forwards.empty() &&
        content.forwards.front().number <= parameters_of_) {
      content.parameters = std::move(parameters_then_);
      content.parameters_of = std::exchange(parameters_of_, -1);
      parameters_then_ = {};
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

std::string Watcher::capture(const std::string& reason) {
  TORCH_CHECK_VALUE(
      !incidents_folder_.empty(),
      "views::monitor::Monitor::capture: incidents need a folder; set MonitorOptions().incidents().");
  TORCH_CHECK_VALUE(made_here_,
                    "views::monitor::Monitor::capture: the monitor is another process's, from "
                    "which this one was forked; make one here.");
  return write_incident_of(reason, alarms());
}

/// A line in alarms.jsonl.
void Watcher::note(const std::string& text) noexcept {
  if (incidents_folder_.empty()) return;
  guarded([&] { write_line(note_line(text, options_.model(), alarm_time_ns())); });
}

/// Lines that could not be written, on a full disk, say, are counted, and told once they can be.
void Watcher::write_line(const std::string& line) noexcept {
  try {
    const std::int64_t untold = untold_losses_.load();
    append_line(incidents_folder_, line);
    if (untold == 0) return;
    append_line(incidents_folder_, note_line(std::to_string(untold) + (untold == 1 ? " line" : " lines") +
                                                 " before could not be written, and " +
                                                 std::to_string(lost_incidents_.load()) + " incidents in all",
                                             options_.model(), alarm_time_ns()));
    untold_losses_ -= untold;
  } catch (...) {
    ++untold_losses_;
    ++lost_lines_;
    ++errors_;
  }
}

/// The first is noted, all are in metrics.
void Watcher::count_error(const char* what) noexcept {
  if (errors_.fetch_add(1, std::memory_order_relaxed) == 0) note(std::string("not all is watched: ") + what);
}

std::string Watcher::metrics() const {
  if (!made_here_) return {};
  const std::lock_guard lock(data_mutex_);
  PrometheusText out;
  count(out);
  tell_alarms(out);
  tell_modules(out);
  return out.text();
}

namespace {

double number_of(const std::atomic<std::int64_t>& number) {
  return static_cast<double>(number.load());
}

}  // namespace

void Watcher::count(PrometheusText& out) const {
  const std::string& model = options_.model();
  const auto one = [&](const char* name, const char* type, const char* help, double value) {
    out.family(name, type, help);
    out.sample({{"model", model}}, value);
  };
  out.family("torchtap_build_info", "gauge", "Versions of torchtap and LibTorch.");
  out.sample({{"version", TORCHTAP_VERSION}, {"libtorch", TORCH_VERSION}}, 1);
  one("torchtap_forwards_total", "counter", "Forwards that began.", number_of(forwards_));
  one("torchtap_forwards_sampled_total", "counter", "Forwards of which all watched modules were counted.",
      number_of(sampled_));
  one("torchtap_forwards_failed_total", "counter", "Forwards that began and did not return.",
      number_of(failures_));
  one("torchtap_sampling_period", "gauge", "One of so many forwards is sampled.",
      static_cast<double>(sampler_.period()));
  one("torchtap_monitor_seconds_total", "counter", "Time of forwards that the monitor took, estimated.",
      number_of(own_ns_) / 1e9);
  one("torchtap_monitor_errors_total", "counter", "What the monitor could not count or do.",
      number_of(errors_));
  one("torchtap_windows_total", "counter", "Windows that were judged.", static_cast<double>(windows_told_));
  one("torchtap_window_rows", "gauge", "Rows of a window.", static_cast<double>(options_.window()));
  one("torchtap_reference_blocks", "gauge", "The least number of blocks that a reference has.",
      static_cast<double>(blocks_));
  one("torchtap_incidents_total", "counter", "Incidents that were written.", number_of(incidents_));
  one("torchtap_incidents_lost_total", "counter", "Incidents that could not be written.",
      number_of(lost_incidents_));
  one("torchtap_alarm_lines_lost_total", "counter", "Lines of alarms.jsonl that could not be written.",
      number_of(lost_lines_));
  one("torchtap_drift_not_judged", "gauge", "Tensors of the reference whose drift cannot be judged by it.",
      number_of(not_judged_));
  one("torchtap_ring_skipped_total", "counter", "Forwards whose inputs are too large for the ring.",
      ring_ == nullptr ? 0 : static_cast<double>(ring_->skipped()));
  out.family("torchtap_modules", "gauge",
             "Modules that are watched, that hooks do not reach, and those of the "
             "watched ones that are not in the reference.");
  out.sample({{"model", model}, {"state", "watched"}}, static_cast<double>(chosen_.size()));
  out.sample({{"model", model}, {"state", "unreachable"}}, static_cast<double>(unreachable_));
  out.sample({{"model", model}, {"state", "without_reference"}}, static_cast<double>(without_reference_));
}

void Watcher::tell_alarms(PrometheusText& out) const {
  const std::string& model = options_.model();
  out.family("torchtap_alarms_total", "counter", "Alarms that were raised.");
  for (const auto& [rule, number] : raised_by_rule_) {
    out.sample({{"model", model}, {"rule", rule}}, static_cast<double>(number));
  }
  out.family("torchtap_alarm", "gauge", "1 while an alarm is raised.");
  std::map<std::pair<std::string, std::string>, bool> now = ever_raised_;
  for (const Alarm& alarm : book_.all()) now[{alarm.finding.path, alarm.finding.rule}] = true;
  for (const auto& [key, raised] : now) {
    out.sample({{"model", model}, {"module", key.first}, {"rule", key.second}}, raised ? 1 : 0);
  }
}

void Watcher::tell_modules(PrometheusText& out) const {
  const std::string& model = options_.model();
  out.family("torchtap_nonfinite_values_total", "counter",
             "NaN and infinities: of the model's outputs in all forwards, of modules in sampled ones.");
  if (const double all = number_of(nonfinite_); all > 0) out.sample({{"model", model}, {"module", ""}}, all);
  for (const auto& [module, number] : nonfinite_by_module_) {
    out.sample({{"model", model}, {"module", module}}, static_cast<double>(number));
  }
  out.family("torchtap_values_total", "counter", "Values of a module's outputs that were counted.");
  for (const auto& [module, number] : values_by_module_) {
    out.sample({{"model", model}, {"module", module}}, static_cast<double>(number));
  }
  const auto gauges = [&](const char* name, const char* help, std::optional<double> Series::*field) {
    out.family(name, "gauge", help);
    for (const auto& [key, series] : series_) {
      if (!(series.*field)) continue;
      const std::string tensor(rules::name_of(key.second));
      out.sample({{"model", model}, {"module", key.first}, {"tensor", tensor}}, *(series.*field));
    }
  };
  gauges("torchtap_module_mean", "Mean in the last window.", &Series::mean);
  gauges("torchtap_module_rms", "Root mean square in the last window.", &Series::rms);
  gauges("torchtap_module_zero_ratio", "Share of zeros in the last window.", &Series::zeros);
  gauges("torchtap_drift_psi", "Population stability index of the last window against the reference.",
         &Series::psi);
  gauges("torchtap_drift_t2_limit_ratio", "Hotelling's T² of the last window, divided by its limit.",
         &Series::t2);
}

}  // namespace torchtap::views::monitor::detail
