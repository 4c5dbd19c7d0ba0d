// The end of a window: its counts are taken, judged and shown.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <ostream>
#include <set>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/base/write_file.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>
#include <torchtap/views/monitor/detail/window_facts.hpp>
#include <torchtap/views/monitor/incident.hpp>

namespace torchtap::views::monitor::detail {
namespace {

/// Fewer rows than this, or than a window that is shorter, are too few for drift.
constexpr std::int64_t least_rows_of_drift = 64;

/// Windows that are held until there are enough blocks for drift.
constexpr std::size_t most_held = 1024;

/// Number of windows for which an incident has a line.
constexpr std::size_t kept_windows = 8;

const std::string& kind_of(rules::Tensor tensor) {
  switch (tensor) {
    case rules::Tensor::input:
      return name_of(recorders::RecorderKind::forward_pre);
    case rules::Tensor::gradient:
      return name_of(recorders::RecorderKind::backward_output);
    default:
      return name_of(recorders::RecorderKind::forward_output);
  }
}

/// Inputs, outputs as they came, the gradients of these in their order, parameters.
void in_order_of_execution(std::vector<rules::Facts>& facts,
                           const std::map<std::string, std::int64_t>& order) {
  const auto place = [&](const rules::Facts& one) {
    const auto at = order.find(one.path);
    return one.tensor == rules::Tensor::input || one.tensor == rules::Tensor::parameter || at == order.end()
               ? 0
               : at->second;
  };
  std::stable_sort(facts.begin(), facts.end(), [&](const rules::Facts& a, const rules::Facts& b) {
    return std::tuple(a.tensor, place(a), a.slot) < std::tuple(b.tensor, place(b), b.slot);
  });
}

bool is_of(const ReferenceTensor& learned, const std::string& path) {
  return learned.path == path ||
         std::find(learned.aliases.begin(), learned.aliases.end(), path) != learned.aliases.end();
}

/// The ring's entry for a window: one line of JSON.
std::string window_text(std::int64_t window, std::int64_t forward, std::int64_t rows,
                        const std::vector<rules::Facts>& facts) {
  json::Json tensors = json::Json::array();
  for (const rules::Facts& one : facts) {
    json::Json& tensor = tensors.emplace_back(
        json::Json{{"module", one.path}, {"tensor", rules::name_of(one.tensor)}, {"slot", one.slot}});
    const std::pair<const char*, const std::optional<double>&> numbers[]{
        {"count", one.count}, {"nan", one.nan}, {"inf", one.inf},   {"zeros", one.zeros},
        {"min", one.min},     {"max", one.max}, {"mean", one.mean}, {"std", one.std}};
    for (const auto& [name, number] : numbers)
      if (number) tensor[name] = *number;
  }
  return json::text(
      {{"window", window}, {"forward", forward}, {"rows", rows}, {"tensors", std::move(tensors)}});
}

}  // namespace

/// Makes the tests of drift, and incidents of the remains of killed processes.
void Watcher::prepare() {
  if (nothing_is_left()) return;
  if (!incidents_folder_.empty()) {
    guarded([&] { recover_incidents(incidents_folder_, options_.keep_incidents()); });
  }
  std::map<std::string, std::int64_t> why_not;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Watched& one = watched_[i];
    if (one.tensor == rules::Tensor::gradient) continue;
    const std::string& path = modules_[one.module].path();
    if (!options_.rules().is_on("drift", path)) continue;
    DriftOptions how;
    how.false_alarms = options_.rules().value("drift", "false_alarms", path);
    how.size = options_.rules().value("drift", "size", path);
    how.rows = options_.window();
    for (const ReferenceTensor& learned : learned_.tensors()) {
      if (learned.kind != kind_of(one.tensor) || !is_of(learned, path)) continue;
      guarded([&] {
        DriftTest test(learned.results, how);
        {
          const std::lock_guard lock(data_mutex_);
          blocks_ = blocks_ == 0 ? test.blocks() : std::min(blocks_, test.blocks());
        }
        if (test.why_not().empty()) {
          tests_.emplace(std::pair(i, learned.slot), Test{std::move(test), {}, 0, false});
        } else {
          ++why_not[test.why_not()];
        }
      });
    }
  }
  learned_ = Reference();
  for (const auto& [why, count] : why_not) {
    not_judged_ += count;
    note("drift of " + std::to_string(count) + (count == 1 ? " tensor" : " tensors") +
         " is not judged: " + why);
  }
}

/// To be judged, now that it stops.
bool Watcher::nothing_is_left() const {
  const std::lock_guard lock(due_mutex_);
  return stops_ && due_.taken.empty() && rows_.load() == 0;
}

/// The monitor's thread.
void Watcher::work() {
  judging_ = std::this_thread::get_id();
  guarded([&] { prepare(); });
  std::unique_lock lock(due_mutex_);
  busy_ = false;
  while (true) {
    const auto waits = [&] {
      return due_.window || !due_.taken.empty() || due_.capture || !due_.alarms.empty() ||
             due_.ticket > done_;
    };
    if (!waits() && !stops_) {
      using Seconds = std::chrono::duration<double>;
      busy_ = false;
      due_changed_.wait_for(lock, std::min(Seconds(options_.window_seconds()), Seconds(3600)),
                            [&] { return waits() || stops_; });
    }
    busy_ = true;
    const bool stops = stops_;
    const std::uint64_t ticket = due_.ticket;
    Due due = std::exchange(due_, Due());
    due_.ticket = ticket;
    lock.unlock();
    const auto passed = static_cast<double>(clock_ns() - window_began_.load()) / 1e9;
    if (rows_.load() >= least_rows_of_drift && passed >= options_.window_seconds()) due.window = true;
    guarded([&] { do_all(std::move(due)); });
    lock.lock();
    done_ = std::max(done_, ticket);
    due_done_.notify_all();
    if (stops) break;
  }
  ended_ = true;
  due_done_.notify_all();
}

/// Does the thread's work where there is no thread. One thread at a time; the others continue, unless they
/// wait.
void Watcher::serve(bool wait) {
  if (judging_.load() == std::this_thread::get_id()) return;  // a forward in a callback
  std::unique_lock judge(judge_mutex_, std::defer_lock);
  if (wait) {
    judge.lock();
  } else if (!judge.try_lock() || closed_) {
    return;
  }
  judging_ = std::this_thread::get_id();
  Due due;
  {
    const std::lock_guard lock(due_mutex_);
    due = std::exchange(due_, Due());
  }
  guarded([&] { do_all(std::move(due)); });
  judging_ = std::thread::id();
}

void Watcher::do_all(Due due) {
  for (Alarm& alarm : due.alarms) {
    const bool is_new = [&] {
      const std::lock_guard lock(data_mutex_);
      return book_.raise(alarm);
    }();
    if (is_new) tell({std::move(alarm)});
  }
  if (due.capture && !incidents_folder_.empty()) guarded([&] { capture("requested"); });
  for (const Window& window : due.taken) guarded([&] { end_window(window); });
  if (due.window) end_window(take());
}

Watcher::Window Watcher::take() {
  const base::RecordingMode quiet;
  const std::lock_guard taking(take_mutex_);
  Window taken;
  taken.rows = rows_.exchange(0);
  window_began_ = clock_ns();
  window_asked_ = false;
  taken.forward = forwards_.load() - 1;
  std::vector<Seen>& seen = taken.seen;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    Watched& one = watched_[i];
    const model::ModuleRef& module = modules_[one.module];
    one.calls += one.data.events();
    const std::int64_t samples = one.data.samples();
    const core::Value value = one.data.take();
    if (value.is_none()) continue;
    core::Value::Dict slots;
    for (const auto& [slot, of] : value.dict()) {
      if (!of.is_dict()) continue;  // an undefined tensor
      Seen next{i, 0, {}, {}};
      for (const auto& [name, tensor] : of.dict()) {
        if (name == "order") {
          next.order = tensor.tensor().item<std::int64_t>();
        } else {
          next.results.set(name, tensor.tensor());
        }
      }
      next.facts.path = module.path();
      next.facts.type = module.type();
      next.facts.tensor = one.tensor;
      next.facts.slot = std::stoll(slot);
      next.facts.leaf = module.leaf();
      next.facts.calls = static_cast<double>(std::max(one.calls, std::int64_t{1}));
      set_facts(next.facts, next.results, one.tensor == rules::Tensor::gradient ? options_.loss_scale() : 1);
      slots.emplace_back(slot, core::Value(next.results));
      seen.push_back(std::move(next));
    }
    if (slots.empty()) continue;
    storage::Entry entry;
    entry.path = base::utf8_text(module.path());
    for (const std::string& alias : module.aliases()) entry.aliases.push_back(base::utf8_text(alias));
    entry.type = module.type();
    entry.kind = kind_of(one.tensor);
    entry.samples = std::max(samples, std::int64_t{1});
    entry.reduction = WindowBlocks().describe();
    entry.value = std::move(slots);
    taken.entries.push_back(std::move(entry));
  }
  for (const Watched& one : watched_) taken.calls.push_back(one.calls);
  return taken;
}

std::map<AlarmBook::Key, Drift> Watcher::compare(const std::vector<Seen>& seen, std::int64_t rows) {
  std::map<AlarmBook::Key, Drift> compared;
  for (const Seen& one : seen) {
    const auto found = tests_.find({one.watched, one.facts.slot});
    if (found == tests_.end() || !one.facts.min) continue;  // without finite values
    Test& test = found->second;
    test.rows += rows;
    test.held.push_back(one.results);
    if (test.rows < std::min(least_rows_of_drift, options_.window())) continue;
    guarded([&] {
      const Drift drift = test.test.compare(test.held, test.rows);
      if (!std::isfinite(drift.limit) && test.held.size() < most_held) return;
      test.held.clear();
      test.rows = 0;
      test.judged = true;
      compared.emplace(AlarmBook::Key{"drift", one.facts.path, one.facts.tensor, one.facts.slot}, drift);
    });
  }
  return compared;
}

/// At the end: tensors that had values, and whose windows were too few for drift.
void Watcher::tell_unjudged() {
  const auto count = std::count_if(tests_.begin(), tests_.end(), [](const auto& one) {
    return !one.second.judged && !one.second.held.empty();
  });
  if (count == 0) return;
  not_judged_ += count;
  note("drift of " + std::to_string(count) + (count == 1 ? " tensor" : " tensors") +
       " was not judged: there were too few rows or batches");
}

/// Not of a module that could not be counted, and not inside of attention, which reads the parameters of
/// modules inside of it.
bool Watcher::may_tell_never_ran(std::size_t watched) const {
  const model::ModuleRef& module = modules_[watched_[watched].module];
  const std::string& path = module.path();
  {
    const std::lock_guard lock(data_mutex_);
    if (not_counted_.count(path) != 0) return false;
  }
  return std::none_of(modules_.begin(), modules_.end(), [&](const model::ModuleRef& one) {
    const bool around = one.path().size() < path.size() &&
                        path.compare(0, one.path().size(), one.path()) == 0 &&
                        (one.path().empty() || path[one.path().size()] == '.');
    return around && (one.type().find("Attention") != std::string::npos ||
                      one.type().find("TransformerEncoderLayer") != std::string::npos);
  });
}

/// The facts after a window, for the rules: tensors, modules that never ran, parameters.
std::vector<rules::Facts> Watcher::facts_of(const Window& taken) const {
  std::vector<rules::Facts> facts;
  std::map<std::string, std::int64_t> order;
  for (const Seen& one : taken.seen) {
    facts.push_back(one.facts);
    if (one.facts.tensor == rules::Tensor::output) order.emplace(one.facts.path, one.order);
  }
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Watched& one = watched_[i];
    if (one.tensor != rules::Tensor::output || taken.calls[i] != 0 || !may_tell_never_ran(i) ||
        order.count(modules_[one.module].path()) != 0)
      continue;
    rules::Facts never;
    never.path = modules_[one.module].path();
    never.type = modules_[one.module].type();
    never.leaf = modules_[one.module].leaf();
    never.calls = 0;
    facts.push_back(std::move(never));
  }
  in_order_of_execution(facts, order);
  if (parameters_ != nullptr) {
    std::vector<rules::Facts> held = parameters_->facts();
    std::move(held.begin(), held.end(), std::back_inserter(facts));
  }
  return facts;
}

/// Adds drifted tensors to the alarms that hold. Returns the tensors that are far below their limits.
std::set<AlarmBook::Key> Watcher::add_drift(const std::vector<Seen>& seen,
                                            const std::map<AlarmBook::Key, Drift>& compared,
                                            std::int64_t window, std::vector<Alarm>& holding) const {
  std::set<AlarmBook::Key> calm;
  for (const Seen& one : seen) {
    const auto at = compared.find({"drift", one.facts.path, one.facts.tensor, one.facts.slot});
    if (at == compared.end()) continue;
    const Drift& drift = at->second;
    if (drift.t2 < drift.limit / 2) calm.insert(at->first);
    if (!drift.drifted) continue;
    rules::Finding finding;
    finding.rule = "drift";
    finding.path = one.facts.path;
    finding.type = one.facts.type;
    finding.tensor = one.facts.tensor;
    finding.slot = one.facts.slot;
    finding.value = drift.t2;
    finding.limit = drift.limit;
    finding.sentence = "its distribution differs from the reference's";
    holding.push_back(alarm_of(std::move(finding), window));
    holding.back().drift = drift;
  }
  return calm;
}

void Watcher::end_window(const Window& taken) {
  const std::int64_t rows = taken.rows;
  const std::vector<Seen>& seen = taken.seen;
  if (seen.empty()) return;
  const std::int64_t window = windows_++;
  {
    const std::lock_guard lock(data_mutex_);
    last_window_ = taken.entries;
  }

  const std::vector<rules::Facts> facts = facts_of(taken);
  std::vector<Alarm> holding;
  const auto threw = [&](const std::string& rule, const std::exception_ptr& error) {
    guarded([&] {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& what) {
        TORCH_CHECK(false, "the program's rule \"", rule, "\" threw: ", what.what());
      }
    });
  };
  guarded([&] {
    for (rules::Finding& finding : rules::check(facts, options_.rules(), threw)) {
      holding.push_back(alarm_of(std::move(finding), window));
    }
  });
  const std::map<AlarmBook::Key, Drift> compared = compare(seen, rows);
  const std::set<AlarmBook::Key> calm = add_drift(seen, compared, window, holding);
  const bool nonfinite = nonfinite_in_window_.exchange(false), failures = failed_in_window_.exchange(false);
  const auto kept = [&](const AlarmBook::Key& key) {
    const auto& [rule, path, tensor, slot] = key;
    if (rule == "drift") return calm.count(key) == 0;
    if (rule == "forward_failed") return failures;
    return nonfinite && rule == "nonfinite" && path.empty() && tensor == rules::Tensor::output;
  };
  std::vector<Alarm> changes;
  {
    const std::lock_guard lock(data_mutex_);
    changes = book_.end_window(holding, kept);
    windows_told_ = windows_;
  }
  for (Alarm& alarm : changes) {
    if (!alarm.raised) {
      alarm.window = window;
      alarm.forward = taken.forward;
      alarm.time_ns = alarm_of({}, window).time_ns;
    }
  }
  remember(seen, compared);
  if (!incidents_folder_.empty()) {
    const std::string text = window_text(window, taken.forward, rows, facts);
    if (ring_ != nullptr) ring_->note_window(text);
    const std::lock_guard lock(data_mutex_);
    windows_lately_.push_back(text);
    if (windows_lately_.size() > kept_windows) windows_lately_.pop_front();
  }
  tell(std::move(changes));
  write_events(facts, taken.forward);
  write_metrics();
}

void Watcher::remember(const std::vector<Seen>& seen, const std::map<AlarmBook::Key, Drift>& compared) {
  const std::lock_guard lock(data_mutex_);
  for (const Seen& one : seen) {
    const rules::Facts& facts = one.facts;
    if (facts.tensor == rules::Tensor::gradient) continue;
    if (facts.tensor == rules::Tensor::output) {
      const double bad = facts.nan.value_or(0) + facts.inf.value_or(0);
      // The model's own inputs and outputs are counted in each forward.
      if (bad != 0 && !facts.path.empty()) nonfinite_by_module_[facts.path] += static_cast<std::int64_t>(bad);
      values_by_module_[facts.path] += static_cast<std::int64_t>(*facts.count);
    }
    if (!has_series_[watched_[one.watched].module] || facts.slot != 0) continue;
    Series& series = series_[{facts.path, facts.tensor}];
    series.mean = facts.mean;
    series.rms = facts.rms;
    series.zeros = *facts.count > 0 ? std::optional(*facts.zeros / *facts.count) : std::nullopt;
    const auto at = compared.find({"drift", facts.path, facts.tensor, facts.slot});
    if (at == compared.end()) continue;
    series.psi = at->second.psi;
    series.t2 = at->second.t2 / at->second.limit;
  }
}

void Watcher::write_events(const std::vector<rules::Facts>& facts, std::int64_t step) {
  if (events_ == nullptr || events_failed_) return;
  try {
    for (const rules::Facts& one : facts) {
      if (!one.count) continue;
      std::string tag =
          (one.path.empty() ? "model" : one.path) + "/" + std::string(rules::name_of(one.tensor));
      if (one.slot != 0) tag += "/" + std::to_string(one.slot);
      std::vector<double> low, high, counts;
      for (const rules::Bin& bin : one.bins) {
        low.push_back(bin.low);
        high.push_back(bin.high);
        counts.push_back(bin.count);
      }
      tensorboard::HistogramValue histogram = tensorboard::histogram_of(low, high, counts, *one.zeros);
      const double finite = *one.count - *one.nan - *one.inf;
      histogram.num = finite;
      histogram.min = one.min.value_or(0);
      histogram.max = one.max.value_or(0);
      histogram.sum = one.mean.value_or(0) * finite;
      histogram.sum_squares = one.rms.value_or(0) * one.rms.value_or(0) * finite;
      if (finite > 0) events_->histogram(tag, step, histogram);
      if (one.mean) events_->scalar(tag + "/mean", step, *one.mean);
      if (one.std) events_->scalar(tag + "/std", step, *one.std);
      if (*one.count > 0) events_->scalar(tag + "/zeros", step, *one.zeros / *one.count);
      if (*one.nan + *one.inf > 0) events_->scalar(tag + "/nonfinite", step, *one.nan + *one.inf);
      if (!one.updates.empty()) events_->scalar(tag + "/update_ratio", step, one.updates.back());
    }
    events_->flush();
  } catch (const c10::Error& error) {  // a full disk, say: once
    events_failed_ = true;
    note(std::string("TensorBoard's events are not written any more: ") + error.what_without_backtrace());
  }
}

void Watcher::write_metrics() {
  if (options_.metrics_file().empty()) return;
  try {
    const std::string text = metrics();
    base::write_file(
        "views::monitor::MonitorOptions::metrics_file", options_.metrics_file(),
        [&](std::ostream& stream) { stream << text; }, /*sync=*/false);
  } catch (const c10::Error& error) {
    ++errors_;
    if (!std::exchange(metrics_failed_, true)) {
      note(std::string("metrics are not written: ") + error.what_without_backtrace());
    }
  }
}

}  // namespace torchtap::views::monitor::detail
