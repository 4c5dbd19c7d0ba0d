#pragma once

// A model that a monitor watches.

#include <ATen/core/ivalue.h>

#include <atomic>
#include <condition_variable>
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
#include <tuple>
#include <utility>
#include <vector>

#include <torchtap/base/process.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/views/monitor/alarm.hpp>
#include <torchtap/views/monitor/detail/alarm_book.hpp>
#include <torchtap/views/monitor/detail/flight_recorder.hpp>
#include <torchtap/views/monitor/detail/open_forwards.hpp>
#include <torchtap/views/monitor/detail/parameter_steps.hpp>
#include <torchtap/views/monitor/detail/sampler.hpp>
#include <torchtap/views/monitor/drift.hpp>
#include <torchtap/views/monitor/options.hpp>
#include <torchtap/views/monitor/reference.hpp>
#include <torchtap/views/tensorboard/event_file.hpp>

namespace torchtap::views::monitor::detail {

class PrometheusText;

/// Incidents of one rule are at least so far apart.
constexpr std::int64_t incident_gap_ns = std::int64_t{60} * 1'000'000'000;

/// The work of a monitor: hooks of the root begin and end forwards (watcher_forward.cpp); recorders count
/// what passes in sampled ones; windows are judged and alarms told (watcher_window.cpp, watcher_alarms.cpp)
/// in the monitor's thread or, without one, in the forward.
class Watcher : public std::enable_shared_from_this<Watcher> {
 public:
  /// `modules` begins with the root. Throws as `Monitor`'s constructor.
  Watcher(std::vector<model::ModuleRef> modules, const std::string& reference, MonitorOptions options);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher();
  /// Attaches, and starts the thread. Throws as `hooks::attach` does; nothing is attached then.
  void start();
  /// Detaches, judges what is left, and ends the thread.
  void close() noexcept;

  void on_alarm(std::function<void(const Alarm&)> callback);
  std::vector<Alarm> alarms() const;
  std::string metrics() const;
  std::string capture(const std::string& reason);
  void request_capture() noexcept { capture_requested_.store(true, std::memory_order_relaxed); }
  void flush();
  /// Goes on with another object of the model. Throws as `Monitor::follow`.
  void follow(std::vector<model::ModuleRef> modules);
  /// A thread ended in this forward.
  void lost(const OpenForward& forward) noexcept;

 private:
  /// A subrecorder, and the kind of its tensors.
  struct Watched {
    recorders::Subrecorder data;
    rules::Tensor tensor;
    std::size_t module;  // in `modules_`
    std::int64_t calls = 0;
  };
  /// One tensor of a window.
  struct Seen {
    std::size_t watched;
    std::int64_t order;
    core::Results results;  // of Blocks
    rules::Facts facts;
  };
  /// The counts of a window that has enough rows.
  struct Window {
    std::int64_t rows = 0, forward = 0;  // the last forward
    std::vector<Seen> seen;
    std::vector<storage::Entry> entries;
    std::vector<std::int64_t> calls;  // of `watched_`, until then
  };
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
  /// Work that waits to be done outside of forwards.
  struct Due {
    bool window = false, capture = false;
    std::vector<Window> taken;  // in forwards, while the monitor's thread was busy
    std::vector<Alarm> alarms;  // about one forward
    std::uint64_t ticket = 0;
  };

  /// Whether and how a module's life ends. A module that no shared pointer owns, such as a plain variable,
  /// may end at any time: it is looked at in its own calls only.
  struct Life {
    std::weak_ptr<const torch::nn::Module> shared;
    bool expires = false;  // when its last owner lets go
    bool unknown = false;  // nobody owns it, and it has parameters or buffers of its own
    std::optional<c10::weak_intrusive_ptr<c10::ivalue::Object>> script;  // of a module of TorchScript
  };

  // watcher.cpp
  void check_options() const;
  void choose(const selectors::Selector& selector);
  void load_reference();
  void open_ring();
  bool is_training(std::size_t called) const;
  std::vector<model::ModuleRef> living(std::vector<std::shared_ptr<const void>>& keep) const;
  void check_learn() const;
  void not_counted(const std::string& path);
  void note_lives();
  void let_go_of_scripts();
  void attach_all();
  void add_recorder(recorders::RecorderKind kind, const std::vector<std::size_t>& modules,
                    rules::Tensor tensor);
  void save_learned();
  void find_failed_here();
  /// Counts exceptions, which the model must not see.
  template <class Function>
  void guarded(Function&& function) noexcept {
    try {
      function();
    } catch (const c10::Error& error) {
      count_error(error.what_without_backtrace());
    } catch (const std::exception& error) {
      count_error(error.what());
    } catch (...) {
      count_error("an exception of another kind");
    }
  }
  void count_error(const char* what) noexcept;

  // watcher_forward.cpp
  void begin(const hooks::Event& event);
  void end(const hooks::Event& event);
  void begin_hidden(std::size_t top, const hooks::Event& event);
  void end_hidden(const hooks::Event& event);
  void open(int depth, std::size_t module, const hooks::Event& event);
  void finish(OpenForward& forward, const hooks::Event& event);
  void failed(std::int64_t number, bool thread_ends = false);
  bool room_for_windows() const;
  bool copies_parameters();
  void ask(Due due);

  // watcher_window.cpp
  void prepare();
  bool nothing_is_left() const;
  void work();
  void serve(bool wait);
  void do_all(Due due);
  Window take();
  void end_window(const Window& taken);
  std::vector<rules::Facts> facts_of(const Window& taken) const;
  std::set<AlarmBook::Key> add_drift(const std::vector<Seen>& seen,
                                     const std::map<AlarmBook::Key, Drift>& compared, std::int64_t window,
                                     std::vector<Alarm>& holding) const;
  bool may_tell_never_ran(std::size_t watched) const;
  void tell_unjudged();
  std::map<AlarmBook::Key, Drift> compare(const std::vector<Seen>& seen, std::int64_t rows);
  void remember(const std::vector<Seen>& seen, const std::map<AlarmBook::Key, Drift>& compared);
  // Parts of `metrics`, under its lock.
  void count(PrometheusText& out) const;
  void tell_alarms(PrometheusText& out) const;
  void tell_modules(PrometheusText& out) const;
  void write_events(const std::vector<rules::Facts>& facts, std::int64_t step);
  void write_metrics();

  // watcher_alarms.cpp
  Alarm alarm_of(rules::Finding finding, std::int64_t window) const;
  void tell(std::vector<Alarm> changes);
  std::string write_incident_of(const std::string& reason, const std::vector<Alarm>& alarms);
  bool may_write(const std::string& rule);
  void note(const std::string& text) noexcept;
  void write_line(const std::string& line) noexcept;

  const MonitorOptions options_;
  const base::MadeHere made_here_;
  std::shared_ptr<Watcher> kept_;  // itself, in a child that must not destroy it
  const std::uint64_t serial_;
  std::vector<model::ModuleRef> modules_;
  std::vector<std::size_t> chosen_;  // watched modules, as indices of `modules_`
  std::vector<std::size_t> tops_;    // if the root's calls cannot be seen: the outermost that can be
  std::int64_t unreachable_ = 0, without_reference_ = 0;
  std::vector<bool> has_series_;  // by module
  std::vector<Life> lives_;       // of the modules
  std::string reference_;
  Reference learned_;
  std::string incidents_folder_;  // empty: no incidents are written

  std::unique_ptr<FlightRecorder> ring_;
  std::unique_ptr<ParameterSteps> parameters_;
  std::vector<std::unique_ptr<recorders::Recorder>> recorders_;
  std::vector<Watched> watched_;
  std::vector<hooks::Handle> handles_;
  Sampler sampler_;

  // Forwards.
  std::atomic<std::int64_t> forwards_{0}, sampled_{0}, failures_{0}, errors_{0}, own_ns_{0};
  std::atomic<std::int64_t> not_judged_{0}, lost_lines_{0}, lost_incidents_{0}, untold_losses_{0};
  std::atomic<std::int64_t> rows_{0}, window_began_{0}, nonfinite_{0};
  std::atomic<bool> gradients_sampled_{false}, capture_requested_{false}, window_asked_{false};
  std::atomic<bool> nonfinite_in_window_{false}, failed_in_window_{false};
  std::atomic<int> first_top_{-1}, calls_of_tops_{0};  // of a hidden root

  // Taking a window, in any thread.
  std::mutex take_mutex_;
  std::atomic<bool> busy_{true};  // the monitor's thread: it makes its tests first

  // The waiting work.
  mutable std::mutex due_mutex_;
  std::condition_variable due_changed_, due_done_;
  Due due_;
  std::uint64_t tickets_ = 0, done_ = 0;
  bool stops_ = false, ended_ = false;
  std::thread thread_;
  std::atomic<bool> closed_{false};

  // Windows, judged by one thread at a time.
  std::mutex judge_mutex_;
  std::atomic<std::thread::id> judging_{};
  std::map<std::pair<std::size_t, std::int64_t>, Test> tests_;  // watched, slot
  std::int64_t windows_ = 0;
  std::unique_ptr<tensorboard::EventFile> events_;
  bool events_failed_ = false, metrics_failed_ = false;

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
  core::Value::Dict parameters_then_;  // of a model in training, as a forward had them that alarmed
  std::int64_t parameters_of_ = -1;    // its number
  std::atomic<std::int64_t> parameters_copied_{0};
  std::deque<std::string> windows_lately_;  // as the ring has them
  std::int64_t windows_told_ = 0, blocks_ = 0;
  std::atomic<std::int64_t> incidents_{0};
  std::mutex incident_mutex_;
  std::map<std::string, std::int64_t> last_incident_;  // by rule, on the monotonic clock
};

}  // namespace torchtap::views::monitor::detail
