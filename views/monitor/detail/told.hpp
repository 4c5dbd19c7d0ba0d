#pragma once

// What a watcher tells of its model: to a judge in this process, or in another.

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/rules/facts.hpp>
#include <torchtap/views/monitor/alarm.hpp>

namespace torchtap::views::monitor::detail {

struct JudgedModule {
  std::string path;
  std::vector<std::string> aliases;
  std::string type;
  bool leaf = false;
  bool has_series = false;  // in metrics
};

/// The model, as a judge knows it.
struct JudgedModel {
  std::string name;                   // in metrics and alarms
  std::vector<JudgedModule> modules;  // the root is the first
  std::vector<std::size_t> chosen;    // those that are watched
  std::int64_t unreachable = 0;       // those that were to be watched, and are not reached
  /// The watched tensors: a module's, and of which kind.
  std::vector<std::pair<std::size_t, rules::Tensor>> tensors;
};

/// One tensor of a window.
struct SeenTensor {
  std::size_t tensor = 0;  // of `JudgedModel::tensors`
  std::int64_t slot = 0, order = 0, samples = 0;
  core::Results results;  // of Blocks
};

/// The counts of a window.
struct Window {
  std::int64_t number = 0, rows = 0, forward = 0;  // the last forward
  std::vector<SeenTensor> seen;
  std::vector<std::int64_t> calls;         // of each tensor, until then
  bool nonfinite = false, failed = false;  // forwards in it that had values that are not finite, or threw
  std::vector<rules::Facts> parameters;    // of a model whose parameters are watched
};

/// Numbers of the watcher, for metrics.
struct Counts {
  std::int64_t forwards = 0, sampled = 0, failures = 0, own_ns = 0, nonfinite = 0, period = 0,
               ring_skipped = 0;
};

/// Copies of all parameters and buffers, as a forward had them.
struct CopiedParameters {
  std::int64_t forward = -1;
  core::Value::Dict values;
};

/// Incidents of one rule are at least so far apart, and copies of parameters for them.
constexpr std::int64_t incident_gap_ns = std::int64_t{60} * 1'000'000'000;

/// Now, since 1970.
std::int64_t alarm_time_ns();
/// An alarm that is raised now, about a window or, with window -1, one forward.
Alarm alarm_of(rules::Finding finding, std::int64_t window, std::int64_t forward);

/// What there is to judge.
struct Told {
  Counts counts;
  std::vector<Alarm> alarms;  // about one forward
  bool capture = false;       // an incident was asked for
  std::vector<Window> windows;
  std::optional<CopiedParameters> parameters;
  std::string digest;                    // of the parameters; empty: it is not known
  std::vector<std::string> not_counted;  // paths of modules that ran although nothing of them was counted
  std::vector<std::string> errors;
  bool ended = false;  // nothing more is told
};

/// Calls `function`, and has `counter` count what it throws.
template <class Counter, class Function>
void count_exceptions(Counter& counter, Function&& function) noexcept {
  try {
    function();
  } catch (const c10::Error& error) {
    counter.count_error(error.what_without_backtrace());
  } catch (const std::exception& error) {
    counter.count_error(error.what());
  } catch (...) {
    counter.count_error("an exception of another kind");
  }
}

/// As bytes, for another process with the same torchtap.
TORCHTAP_API std::string packed(const JudgedModel& model);
TORCHTAP_API std::string packed(const Told& told);
/// Throw `std::exception`s for bytes that `packed` did not make.
TORCHTAP_API JudgedModel unpacked_model(const std::string& bytes);
TORCHTAP_API Told unpacked(const std::string& bytes);

}  // namespace torchtap::views::monitor::detail
