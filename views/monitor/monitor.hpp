#pragma once

/// A model watched while it runs: rules, drift against a reference, and the inputs that led to an alarm.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/views/monitor/alarm.hpp>
#include <torchtap/views/monitor/options.hpp>

namespace torchtap::views::monitor {

namespace detail {
class LearnedFolder;
class Watcher;
}  // namespace detail

/// Watches a model by hooks; the program's loop does not change:
///
///     views::monitor::Monitor watch(*model, "reference/", views::monitor::MonitorOptions().incidents("incidents/"));
///
/// Any number of threads may run the model and call any member. Outputs and gradients keep their bits. In a
/// forked child the monitor does nothing.
class TORCHTAP_API Monitor {
 public:
  /// `reference`: a recording that `learn` wrote, or "" for rules alone. Throws `c10::ValueError` if no
  /// module can be reached, no module of the model is in the reference, or an option is out of range.
  /// In modules of a walk the first is the root.
  Monitor(const selectors::ModuleView& model, const std::string& reference, MonitorOptions options = {});
  Monitor(Monitor&&) noexcept;
  Monitor& operator=(Monitor&&) noexcept;
  /// Judges the rows of an unfinished window, detaches, and removes the ring's file.
  ~Monitor();

  /// Goes on with another object of the model, say one that was loaded anew, instead of the former one:
  /// windows, alarms and the reference stay. Call it while no other call of the monitor runs, before the
  /// object is called for the first time. Throws `c10::ValueError` if paths or types of its modules are other
  /// ones, or with `MonitorOptions::parameters`.
  void follow(const selectors::ModuleView& model);

  /// Called for each alarm that is raised or cleared, one at a time, in the monitor's thread. An exception
  /// from it is noted in alarms.jsonl.
  Monitor& on_alarm(std::function<void(const Alarm&)> callback);
  /// The alarms that are raised now.
  std::vector<Alarm> alarms() const;
  /// Prometheus' text format, version 0.0.4.
  std::string metrics() const;
  /// Writes an incident now, and returns its folder. Throws `c10::ValueError` without
  /// `MonitorOptions::incidents`.
  std::string capture(const std::string& reason);
  /// Has the next forward that ends write an incident. Async-signal-safe.
  void request_capture() noexcept;
  /// Waits until all windows that ended are judged. With `learn`, writes the reference.
  void flush();

 private:
  detail::Watcher& watcher() const;

  std::shared_ptr<detail::Watcher> watcher_;        // null after a move, and if it learns
  std::unique_ptr<detail::LearnedFolder> learned_;  // null unless it learns
};

}  // namespace torchtap::views::monitor
