#pragma once

// Judges what a watcher tells of a model, and tells of alarms.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/views/monitor/alarm.hpp>
#include <torchtap/views/monitor/detail/alarm_book.hpp>
#include <torchtap/views/monitor/detail/flight_recorder.hpp>
#include <torchtap/views/monitor/detail/told.hpp>
#include <torchtap/views/monitor/drift.hpp>
#include <torchtap/views/monitor/options.hpp>
#include <torchtap/views/monitor/reference.hpp>
#include <torchtap/views/tensorboard/event_file.hpp>

namespace torchtap::views::monitor::detail {

class PrometheusText;

/// The model behind a judge, as far as an incident shows it.
class Subject {
 public:
  Subject() = default;
  virtual ~Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  virtual Counts counts() const = 0;
  /// The last forwards, oldest first.
  virtual std::vector<KeptForward> forwards() const = 0;
  /// A line about a window that was judged.
  virtual void note_window(const std::string& text) = 0;
  /// The modules that have parameters and buffers, kept by `keep`; none if they cannot be reached.
  virtual std::vector<model::ModuleRef> living(std::vector<std::shared_ptr<const void>>& keep) const = 0;
};

/// Judges windows by rules and for drift (judge_windows.cpp), and tells of alarms by callback, alarms.jsonl,
/// incidents (judge_alarms.cpp), metrics and TensorBoard (judge_numbers.cpp). One thread at a time calls
/// `prepare`, `judge` and `end`; any calls the others.
class TORCHTAP_API Judge {
 public:
  /// `subject` has to outlive it. Throws `c10::ValueError` if the reference is of another model or there is
  /// none, and `c10::Error` if a folder of the options cannot be made.
  Judge(JudgedModel model, const std::string& reference, const MonitorOptions& options, Subject& subject);
  ~Judge();
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  /// The folder of incidents, without symbolic links; empty: none are written.
  const std::string& incidents_folder() const noexcept { return incidents_folder_; }
  /// Makes the tests of drift, which takes tenths of a second for each tensor, and incidents of what killed
  /// processes left.
  void prepare();
  void judge(Told told);
  /// The last window was judged: says what was not.
  void end();

  void on_alarm(std::function<void(const Alarm&)> callback);
  std::vector<Alarm> alarms() const;
  std::string metrics() const;
  /// Throws as `Monitor::capture`.
  std::string capture(const std::string& reason);
  /// Makes an incident of the last forwards of a process that is gone; empty if there were none. With
  /// `if_suspicious` only if one did not return, or had values that are not finite.
  std::string crashed(bool if_suspicious);
  /// The first is noted, all are in metrics.
  void count_error(const char* what) noexcept;
  std::int64_t raised() const noexcept { return raised_; }

 private:
  /// The test of a tensor, and windows that have too few blocks for it.
  struct Test {
    DriftTest test;
    std::vector<core::Results> held;
    std::int64_t rows = 0;
    bool judged = false;  // ever
  };
  /// The gauges of a module.
  struct Series {
    std::optional<double> mean, rms, zeros, psi, t2;
  };
  /// A tensor, and the numbers of it that rules look at.
  struct Seen {
    const SeenTensor* tensor;
    rules::Facts facts;
  };

  void load_reference();
  /// Counts exceptions, which the model must not see.
  template <class Function>
  void guarded(Function&& function) noexcept {
    count_exceptions(*this, std::forward<Function>(function));
  }

  // judge_windows.cpp
  std::vector<Seen> seen_in(const Window& window) const;
  std::vector<storage::Entry> entries_of(const std::vector<Seen>& seen) const;
  void end_window(const Window& window);
  std::vector<rules::Facts> facts_of(const Window& window, const std::vector<Seen>& seen) const;
  std::set<AlarmBook::Key> add_drift(const std::vector<Seen>& seen,
                                     const std::map<AlarmBook::Key, Drift>& compared, const Window& ended,
                                     std::vector<Alarm>& holding) const;
  bool may_tell_never_ran(std::size_t tensor) const;
  std::map<AlarmBook::Key, Drift> compare(const std::vector<Seen>& seen, std::int64_t rows);
  void remember(const std::vector<Seen>& seen, const std::map<AlarmBook::Key, Drift>& compared);

  // judge_alarms.cpp
  void tell(std::vector<Alarm> changes);
  std::string write_incident_of(const std::string& reason, const std::vector<Alarm>& alarms);
  bool may_write(const std::string& rule);
  void note(const std::string& text) noexcept;
  void write_line(const std::string& line) noexcept;

  // judge_numbers.cpp
  void count(PrometheusText& out) const;
  void tell_alarms(PrometheusText& out) const;
  void tell_modules(PrometheusText& out) const;
  void write_events(const std::vector<rules::Facts>& facts, std::int64_t step);
  void write_metrics();

  const JudgedModel model_;
  const MonitorOptions options_;
  Subject& subject_;
  const std::string reference_;
  std::string incidents_folder_;
  Reference learned_;
  std::int64_t without_reference_ = 0;

  std::map<std::pair<std::size_t, std::int64_t>, Test> tests_;  // by tensor and slot
  std::int64_t windows_ = 0;
  std::unique_ptr<tensorboard::EventFile> events_;
  bool events_failed_ = false, metrics_failed_ = false;
  std::atomic<std::int64_t> errors_{0}, not_judged_{0}, lost_lines_{0}, lost_incidents_{0}, untold_losses_{0},
      incidents_{0}, raised_{0};

  // State that members of the monitor read.
  mutable std::mutex data_mutex_;
  std::function<void(const Alarm&)> callback_;
  AlarmBook book_;
  std::map<std::string, std::int64_t> raised_by_rule_;
  std::map<std::pair<std::string, std::string>, bool> ever_raised_;  // module, rule
  std::set<std::string> not_counted_;                                // modules that ran
  std::map<std::string, std::int64_t> nonfinite_by_module_, values_by_module_;
  std::map<std::pair<std::string, rules::Tensor>, Series> series_;
  std::vector<storage::Entry> last_window_;
  CopiedParameters parameters_;  // as a forward of a model in training had them that alarmed
  std::string digest_;
  std::deque<std::string> windows_lately_;  // as the ring has them
  std::int64_t windows_told_ = 0, blocks_ = 0;
  std::mutex incident_mutex_;
  std::map<std::string, std::int64_t> last_incident_;  // by rule, on the monotonic clock
};

}  // namespace torchtap::views::monitor::detail
