// Judges windows: by rules, and for drift.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/views/monitor/detail/judge.hpp>
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
void Judge::prepare() {
  if (!incidents_folder_.empty()) {
    guarded([&] { recover_incidents(incidents_folder_, options_.keep_incidents()); });
  }
  std::map<std::string, std::int64_t> why_not;
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    const auto& [module, tensor] = model_.tensors[i];
    if (tensor == rules::Tensor::gradient) continue;
    const std::string& path = model_.modules[module].path;
    if (!options_.rules().is_on("drift", path)) continue;
    DriftOptions how;
    how.false_alarms = options_.rules().value("drift", "false_alarms", path);
    how.size = options_.rules().value("drift", "size", path);
    how.rows = options_.window();
    for (const ReferenceTensor& learned : learned_.tensors()) {
      if (learned.kind != kind_of(tensor) || !is_of(learned, path)) continue;
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

std::map<AlarmBook::Key, Drift> Judge::compare(const std::vector<Seen>& seen, std::int64_t rows) {
  std::map<AlarmBook::Key, Drift> compared;
  for (const Seen& one : seen) {
    const auto found = tests_.find({one.tensor->tensor, one.facts.slot});
    if (found == tests_.end() || !one.facts.min) continue;  // without finite values
    Test& test = found->second;
    test.rows += rows;
    test.held.push_back(one.tensor->results);
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

/// Not of a module that could not be counted, and not inside of attention, which reads the parameters of
/// modules inside of it.
bool Judge::may_tell_never_ran(std::size_t tensor) const {
  const std::string& path = model_.modules[model_.tensors[tensor].first].path;
  {
    const std::lock_guard lock(data_mutex_);
    if (not_counted_.count(path) != 0) return false;
  }
  return std::none_of(model_.modules.begin(), model_.modules.end(), [&](const JudgedModule& one) {
    const bool around = one.path.size() < path.size() && path.compare(0, one.path.size(), one.path) == 0 &&
                        (one.path.empty() || path[one.path.size()] == '.');
    return around && (one.type.find("Attention") != std::string::npos ||
                      one.type.find("TransformerEncoderLayer") != std::string::npos);
  });
}

/// The facts after a window, for the rules: tensors, modules that never ran, parameters.
std::vector<rules::Facts> Judge::facts_of(const Window& window, const std::vector<Seen>& seen) const {
  std::vector<rules::Facts> facts;
  std::map<std::string, std::int64_t> order;
  for (const Seen& one : seen) {
    facts.push_back(one.facts);
    if (one.facts.tensor == rules::Tensor::output) order.emplace(one.facts.path, one.tensor->order);
  }
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    const JudgedModule& module = model_.modules[model_.tensors[i].first];
    if (model_.tensors[i].second != rules::Tensor::output || window.calls[i] != 0 || !may_tell_never_ran(i) ||
        order.count(module.path) != 0)
      continue;
    rules::Facts never;
    never.path = module.path;
    never.type = module.type;
    never.leaf = module.leaf;
    never.calls = 0;
    facts.push_back(std::move(never));
  }
  in_order_of_execution(facts, order);
  facts.insert(facts.end(), window.parameters.begin(), window.parameters.end());
  return facts;
}

/// Adds drifted tensors to the alarms that hold. Returns the tensors that are far below their limits.
std::set<AlarmBook::Key> Judge::add_drift(const std::vector<Seen>& seen,
                                          const std::map<AlarmBook::Key, Drift>& compared,
                                          const Window& ended, std::vector<Alarm>& holding) const {
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
    holding.push_back(alarm_of(std::move(finding), windows_ - 1, ended.forward));
    holding.back().drift = drift;
  }
  return calm;
}

std::vector<Judge::Seen> Judge::seen_in(const Window& window) const {
  std::vector<Seen> all;
  for (const SeenTensor& one : window.seen) {
    const auto& [index, tensor] = model_.tensors[one.tensor];
    const JudgedModule& module = model_.modules[index];
    Seen seen{&one, {}};
    seen.facts.path = module.path;
    seen.facts.type = module.type;
    seen.facts.tensor = tensor;
    seen.facts.slot = one.slot;
    seen.facts.leaf = module.leaf;
    seen.facts.calls = static_cast<double>(std::max(window.calls[one.tensor], std::int64_t{1}));
    set_facts(seen.facts, one.results, tensor == rules::Tensor::gradient ? options_.loss_scale() : 1);
    all.push_back(std::move(seen));
  }
  return all;
}

/// As `storage::save` takes them: of each module and kind one, with its slots.
std::vector<storage::Entry> Judge::entries_of(const std::vector<Seen>& seen) const {
  std::vector<storage::Entry> entries;
  std::size_t last = model_.tensors.size();
  for (const Seen& one : seen) {
    const auto& [index, tensor] = model_.tensors[one.tensor->tensor];
    if (std::exchange(last, one.tensor->tensor) != one.tensor->tensor) {
      const JudgedModule& module = model_.modules[index];
      storage::Entry& entry = entries.emplace_back();
      entry.path = base::utf8_text(module.path);
      for (const std::string& alias : module.aliases) entry.aliases.push_back(base::utf8_text(alias));
      entry.type = module.type;
      entry.kind = kind_of(tensor);
      entry.samples = std::max(one.tensor->samples, std::int64_t{1});
      entry.reduction = WindowBlocks().describe();
      entry.value = core::Value::Dict();
    }
    core::Value::Dict slots = entries.back().value.dict();
    slots.emplace_back(std::to_string(one.tensor->slot), core::Value(one.tensor->results));
    entries.back().value = std::move(slots);
  }
  return entries;
}

void Judge::end_window(const Window& taken) {
  const std::int64_t rows = taken.rows;
  const std::vector<Seen> seen = seen_in(taken);
  if (seen.empty()) return;
  const std::int64_t window = windows_++;
  {
    const std::lock_guard lock(data_mutex_);
    last_window_ = entries_of(seen);
  }

  const std::vector<rules::Facts> facts = facts_of(taken, seen);
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
      holding.push_back(alarm_of(std::move(finding), window, taken.forward));
    }
  });
  const std::map<AlarmBook::Key, Drift> compared = compare(seen, rows);
  const std::set<AlarmBook::Key> calm = add_drift(seen, compared, taken, holding);
  const auto kept = [&](const AlarmBook::Key& key) {
    const auto& [rule, path, tensor, slot] = key;
    if (rule == "drift") return calm.count(key) == 0;
    if (rule == "forward_failed") return taken.failed;
    return taken.nonfinite && rule == "nonfinite" && path.empty() && tensor == rules::Tensor::output;
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
      alarm.time_ns = alarm_time_ns();
    }
  }
  remember(seen, compared);
  if (!incidents_folder_.empty()) {
    const std::string text = window_text(window, taken.forward, rows, facts);
    subject_.note_window(text);
    const std::lock_guard lock(data_mutex_);
    windows_lately_.push_back(text);
    if (windows_lately_.size() > kept_windows) windows_lately_.pop_front();
  }
  tell(std::move(changes));
  write_events(facts, taken.forward);
  write_metrics();
}

void Judge::remember(const std::vector<Seen>& seen, const std::map<AlarmBook::Key, Drift>& compared) {
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
    if (!model_.modules[model_.tensors[one.tensor->tensor].first].has_series || facts.slot != 0) continue;
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

}  // namespace torchtap::views::monitor::detail
