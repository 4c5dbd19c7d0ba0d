// Runs, series, scalars and health as JSON.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/explorer/detail/control.hpp>
#include <torchtap/views/explorer/detail/health.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {
namespace {

json::Json json_of(const watch::Column& column) {
  return {{"step", column.last_step},  {"count", column.count},   {"nan", column.nan},
          {"posinf", column.posinf},   {"neginf", column.neginf}, {"zeros", column.zeros},
          {"min", column.min},         {"max", column.max},       {"mean", column.mean()},
          {"std", column.deviation()}, {"norm", column.norm()}};
}

/// The series in which a value first was not finite, and whether its call is the producer, which made it of
/// finite values (docs/glossary.md), as far as values were recorded.
struct FirstBad {
  std::optional<std::int64_t> step;
  bool nan = false;
  std::int32_t series = -1;
  SeriesKey key;
  bool producer = false;
};

/// The inputs of a call, in one direction.
struct GivenToCall {
  bool seen = false;
  std::int64_t bad_since = std::numeric_limits<std::int64_t>::max();
};

/// Series are numbered as they first came, so in the order of execution. Parameters are read last, and were
/// used first.
FirstBad find_first_bad(const Run& run) {
  FirstBad first;
  std::map<std::int32_t, GivenToCall> forward, backward;  // by call
  std::int32_t number = -1;
  run.each_series([&](const Series& series) {
    ++number;
    std::optional<std::int64_t> step = series.first_nan;
    if (series.first_inf && (!step || *series.first_inf < *step)) step = series.first_inf;
    const SeriesKey& key = series.key();
    if (key.what == What::input || key.what == What::parameter || key.what == What::grad_output) {
      GivenToCall& given = (key.what == What::grad_output ? backward : forward)[key.call];
      given.seen = given.seen || key.what != What::parameter;
      if (step) given.bad_since = std::min(given.bad_since, *step);
    }
    if (!step) return;
    const bool used_before = key.what == What::parameter && first.key.what != What::parameter;
    if (first.step && (*step > *first.step || (*step == *first.step && !used_before))) return;
    first = {step, series.first_nan && *series.first_nan == *step, number, key, false};
  });
  if (!first.step) return first;
  const GivenToCall given = forward[first.key.call], gradients = backward[first.key.call];
  const bool of_finite = given.seen && given.bad_since > *first.step;
  const What what = first.key.what;
  // A gradient of an output is given to the call, and a tensor that the program names passes on as it is.
  first.producer = what == What::output
                       ? of_finite
                       : (what == What::grad_input || what == What::parameter_grad) && of_finite &&
                             gradients.seen && gradients.bad_since > *first.step;
  return first;
}

}  // namespace

json::Json runs_json(const Runs& runs, bool control) {
  json::Json list = json::Json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = *runs[i];
    const RunInfo info = run.info();
    const auto [first, last] = run.steps();
    json::Json modes = json::Json::array();
    for (const Mode mode : {Mode::train, Mode::eval}) {
      if (run.has(mode)) modes.push_back(name_of(mode));
    }
    const Control* const changes = info.state == "running" ? run.control() : nullptr;
    json::Json& one = list.emplace_back(json::Json{{"id", "r" + std::to_string(i)},
                                                   {"identity", info.identity},
                                                   {"name", info.name},
                                                   {"program", info.program},
                                                   {"state", info.state},
                                                   {"first_step", first},
                                                   {"step", last},
                                                   {"started", info.started},
                                                   {"modes", std::move(modes)},
                                                   {"control", control && changes != nullptr}});
    if (changes != nullptr) {
      one["every"] = changes->every();
      one["paused"] = changes->paused();
    }
  }
  return list;
}

json::Json series_json(Run& run) {
  json::Json list = json::Json::array();
  run.each_series([&](const Series& series) {
    const SeriesKey& key = series.key();
    const auto& updates = series.updates.last();
    list.push_back({{"id", list.size()},
                    {"call", key.call},
                    {"what", name_of(key.what)},
                    {"index", key.index},
                    {"mode", key.mode < 0 ? "" : name_of(static_cast<Mode>(key.mode))},
                    {"name", series.name()},
                    {"columns", series.columns().size()},
                    {"stride", series.stride()},
                    {"last", json_of(series.last())},
                    {"first_nan", series.first_nan},
                    {"first_inf", series.first_inf},
                    {"update_ratio", updates.empty() ? std::nullopt : std::optional(updates.back())}});
  });
  return list;
}

json::Json scalars_json(const Run& run, std::int64_t since) {
  json::Json all = json::Json::object();
  for (const auto& [name, points] : run.scalars(since)) json::add(all, name, points);
  return all;
}

json::Json health_json(Run& run) {
  const FirstBad first = find_first_bad(run);
  json::Json bad;
  if (first.step) {
    bad = {{"step", *first.step},
           {"what", first.nan ? "nan" : "inf"},
           {"call", first.key.call},
           {"series", first.series},
           {"producer", first.producer}};
  }
  json::Json marks = json::Json::array();
  for (const Ill& ill : ills_of(run)) {
    marks.push_back({{"call", ill.call},
                     {"kind", ill.finding.rule},
                     {"what", name_of(ill.what)},
                     {"value", ill.finding.value},
                     {"since", ill.since},
                     {"sentence", ill.finding.sentence}});
  }
  return {{"first_bad", std::move(bad)}, {"marks", std::move(marks)}};
}

}  // namespace torchtap::views::explorer::detail
