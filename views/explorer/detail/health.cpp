// Columns of a run as facts for rules, at any of its steps.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <torchtap/views/explorer/detail/health.hpp>

namespace torchtap::views::explorer::detail {
namespace {

/// A finding's rule and tensor.
std::string key_of(std::size_t scene, const rules::Finding& finding) {
  return c10::str(scene, ' ', static_cast<int>(finding.tensor), ' ', finding.slot, ' ', finding.rule, ' ',
                  finding.path);
}

struct Origin {
  std::int32_t call = 0;
  What what = What::output;
  std::map<std::string, std::int64_t> since;  // of rules about updates
};

/// Facts in the order of execution, with where each is from.
struct Scene {
  std::vector<rules::Facts> facts;
  std::vector<Origin> origins;
};

rules::Tensor tensor_of(What what) {
  switch (what) {
    case What::input:
      return rules::Tensor::input;
    case What::parameter:
      return rules::Tensor::parameter;
    case What::output:
    case What::attach:
      return rules::Tensor::output;
    default:
      return rules::Tensor::gradient;
  }
}

/// The names of calls, and which of them have calls inside.
class Calls {
 public:
  explicit Calls(Run& run) : names_(run.call_names()) {
    for (const auto& [call, name] : names_) parents_.insert(name.parent);
  }

  rules::Facts facts_of(const SeriesKey& key) const {
    rules::Facts facts;
    facts.tensor = tensor_of(key.what);
    facts.slot = key.index;
    facts.leaf = parents_.count(key.call) == 0;
    facts.dimensions = 0;
    const auto name = names_.find(key.call);
    if (name == names_.end()) return facts;
    facts.path = name->second.path;
    if (name->second.call > 0) facts.path += " (call " + std::to_string(name->second.call + 1) + ")";
    facts.type = name->second.type;
    const auto position = static_cast<std::size_t>(key.index);
    if (facts.tensor == rules::Tensor::parameter && position < name->second.dimensions.size())
      facts.dimensions = name->second.dimensions[position];
    return facts;
  }

 private:
  std::map<std::int32_t, Run::CallName> names_;
  std::set<std::int32_t> parents_;
};

/// The column that a step is in, or the nearest before it; null if there is none.
const watch::Column* column_at(const Series& series, std::int64_t step) {
  const auto& columns = series.columns();
  const auto after = std::upper_bound(
      columns.begin(), columns.end(), step,
      [](std::int64_t asked, const Series::Stamped& column) { return asked < column.first_step; });
  return after == columns.begin() ? nullptr : &*std::prev(after);
}

/// The series' values at a step: outputs of each mode, and parameters with their gradients. The gradients of
/// all parameters of a module are one. Values that are not finite are judged apart.
std::array<Scene, modes + 1> scenes_at(const Run& run, const Calls& calls, std::int64_t step,
                                       const std::set<rules::Tensor>& wanted) {
  struct Judged {
    rules::Facts facts;
    Origin origin;
  };
  std::map<std::pair<std::size_t, std::int32_t>, std::vector<Judged>> found;  // by scene and call
  std::map<std::int32_t, watch::Column> gradients;
  run.each_series([&](const Series& series) {
    const SeriesKey& key = series.key();
    const watch::Column* const column = column_at(series, step);
    if (column == nullptr || wanted.count(tensor_of(key.what)) == 0) return;
    if (key.what == What::parameter_grad) {
      const auto [all, is_new] = gradients.emplace(key.call, *column);
      if (!is_new) all->second.merge(*column);
    }
    if (key.what != What::output && key.what != What::attach && key.what != What::parameter) return;
    Judged one{calls.facts_of(key), {key.call, key.what, series.updates.since()}};
    watch::put(*column, one.facts);
    one.facts.updates = series.updates.last();
    const auto mode = static_cast<std::size_t>(key.mode);  // series of no mode are behind all modes
    found[{std::min(mode, modes), key.call}].push_back(std::move(one));
  });
  for (const auto& [call, column] : gradients) {
    Judged one{calls.facts_of({call, What::parameter_grad, 0, -1}), {call, What::parameter_grad, {}}};
    watch::put(column, one.facts);
    found[{modes, call}].push_back(std::move(one));
  }
  std::array<Scene, modes + 1> scenes;
  for (auto& [place, all] : found) {
    for (Judged& one : all) {
      one.facts.nan.reset();
      one.facts.inf.reset();
      scenes[place.first].facts.push_back(std::move(one.facts));
      scenes[place.first].origins.push_back(std::move(one.origin));
    }
  }
  return scenes;
}

/// Values that are not finite, of all steps.
void add_non_finite(const Run& run, const Calls& calls, std::vector<Ill>& ills) {
  std::vector<rules::Facts> facts;
  std::vector<Ill> origins;
  run.each_series([&](const Series& series) {
    if (!series.first_nan && !series.first_inf) return;
    const SeriesKey& key = series.key();
    rules::Facts one = calls.facts_of(key);
    one.slot = static_cast<std::int64_t>(facts.size());
    one.count = one.nan = one.inf = 0;
    for (const watch::Column& column : series.columns()) {
      *one.count += static_cast<double>(column.count);
      *one.nan += static_cast<double>(column.nan);
      *one.inf += static_cast<double>(column.posinf + column.neginf);
    }
    constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    origins.push_back({key.call,
                       key.what,
                       std::min(series.first_nan.value_or(never), series.first_inf.value_or(never)),
                       {}});
    facts.push_back(std::move(one));
  });
  for (rules::Finding& finding : rules::check(facts)) {
    Ill& ill = ills.emplace_back(origins[static_cast<std::size_t>(finding.slot)]);
    finding.slot = 0;
    ill.finding = std::move(finding);
  }
}

}  // namespace

std::vector<Ill> ills_of(Run& run) {
  const std::lock_guard lock(run.judged.mutex);
  const Calls calls(run);
  std::vector<Ill> ills;
  add_non_finite(run, calls, ills);
  std::set<std::int64_t> steps;
  run.each_series([&](const Series& series) {
    for (const watch::Column& column : series.columns()) steps.insert(column.first_step);
  });
  if (steps.empty()) return ills;
  using Open = std::map<std::string, std::size_t>;
  Open open;  // places of findings that may have begun before
  auto step = steps.rbegin();
  const auto scenes = scenes_at(run, calls, *step,
                                {rules::Tensor::output, rules::Tensor::gradient, rules::Tensor::parameter});
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    std::map<std::tuple<std::string, rules::Tensor, std::int64_t>, const Origin*> origins;
    for (std::size_t one = 0; one < scenes[i].facts.size(); ++one) {
      const rules::Facts& facts = scenes[i].facts[one];
      origins[{facts.path, facts.tensor, facts.slot}] = &scenes[i].origins[one];
    }
    for (rules::Finding& finding : rules::check(scenes[i].facts)) {
      const Origin& origin = *origins.at({finding.path, finding.tensor, finding.slot});
      const auto known = origin.since.find(finding.rule);
      if (known == origin.since.end()) open[key_of(i, finding)] = ills.size();
      ills.push_back({origin.call, origin.what, known == origin.since.end() ? *step : known->second,
                      std::move(finding)});
    }
  }
  const Open all = open;
  for (++step; step != steps.rend() && !open.empty(); ++step) {
    if (run.judged.step && *step <= *run.judged.step) {
      for (const auto& [key, place] : open) {
        if (const auto known = run.judged.since.find(key); known != run.judged.since.end())
          ills[place].since = known->second;
      }
      break;
    }
    Open still;
    std::set<rules::Tensor> wanted;
    for (const auto& [key, place] : open) wanted.insert(ills[place].finding.tensor);
    const auto before = scenes_at(run, calls, *step, wanted);
    for (std::size_t i = 0; i < before.size(); ++i) {
      for (const rules::Finding& finding : rules::check(before[i].facts)) {
        const auto found = open.find(key_of(i, finding));
        if (found == open.end()) continue;
        ills[found->second].since = *step;
        still.insert(*found);
      }
    }
    open = std::move(still);
  }
  run.judged.step = *steps.rbegin();
  run.judged.since.clear();
  for (const auto& [key, place] : all) run.judged.since[key] = ills[place].since;
  return ills;
}

}  // namespace torchtap::views::explorer::detail
