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
#include <torchtap/views/explorer/detail/json.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {
namespace {

void write_last(Json& json, const watch::Column& last) {
  json.object("last");
  json.field("step", last.last_step);
  json.field("count", last.count);
  json.field("nan", last.nan);
  json.field("posinf", last.posinf);
  json.field("neginf", last.neginf);
  json.field("zeros", last.zeros);
  json.field("min", last.min);
  json.field("max", last.max);
  json.field("mean", last.mean());
  json.field("std", last.deviation());
  json.field("norm", last.norm());
  json.end();
}

void write_step(Json& json, const char* name, const std::optional<std::int64_t>& step) {
  if (step) {
    json.field(name, *step);
  } else {
    json.null(name);
  }
}

/// The series in which a value first was not finite, and whether its call is the producer: made it of finite
/// values (docs/glossary.md), as far as what is recorded tells.
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

std::string runs_json(const Runs& runs, bool control) {
  Json json;
  json.begin_list();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = *runs[i];
    const RunInfo info = run.info();
    const auto [first, last] = run.steps();
    json.begin();
    json.field("id", "r" + std::to_string(i));
    json.field("identity", info.identity);
    json.field("name", info.name);
    json.field("program", info.program);
    json.field("state", info.state);
    json.field("first_step", first);
    json.field("step", last);
    json.field("started", info.started);
    json.list("modes");
    for (const Mode mode : {Mode::train, Mode::eval}) {
      if (run.has(mode)) json.item(name_of(mode));
    }
    json.end_list();
    const Control* const changes = info.state == "running" ? run.control() : nullptr;
    json.field("control", control && changes != nullptr);
    if (changes != nullptr) {
      json.field("every", changes->every());
      json.field("paused", changes->paused());
    }
    json.end();
  }
  json.end_list();
  return json.text();
}

std::string series_json(Run& run) {
  Json json;
  json.begin_list();
  std::int32_t number = 0;
  run.each_series([&](const Series& series) {
    const SeriesKey& key = series.key();
    json.begin();
    json.field("id", number++);
    json.field("call", key.call);
    json.field("what", name_of(key.what));
    json.field("index", key.index);
    json.field("mode", key.mode < 0 ? "" : name_of(static_cast<Mode>(key.mode)));
    json.field("name", series.name());
    json.field("columns", series.columns().size());
    json.field("stride", series.stride());
    write_last(json, series.last());
    write_step(json, "first_nan", series.first_nan);
    write_step(json, "first_inf", series.first_inf);
    if (!series.updates.last().empty()) {
      json.field("update_ratio", series.updates.last().back());
    } else {
      json.null("update_ratio");
    }
    json.end();
  });
  json.end_list();
  return json.text();
}

std::string scalars_json(const Run& run, std::int64_t since) {
  Json json;
  json.begin();
  for (const auto& [name, points] : run.scalars(since)) {
    json.list(name);
    for (const auto& [step, value] : points) {
      json.begin_list();
      json.item(step);
      json.item(value);
      json.end_list();
    }
    json.end_list();
  }
  json.end();
  return json.text();
}

std::string health_json(Run& run) {
  const FirstBad first = find_first_bad(run);
  Json json;
  json.begin();
  if (first.step) {
    json.object("first_bad");
    json.field("step", *first.step);
    json.field("what", first.nan ? "nan" : "inf");
    json.field("call", first.key.call);
    json.field("series", first.series);
    json.field("producer", first.producer);
    json.end();
  } else {
    json.null("first_bad");
  }
  json.list("marks");
  for (const Ill& ill : ills_of(run)) {
    json.begin();
    json.field("call", ill.call);
    json.field("kind", ill.finding.rule);
    json.field("what", name_of(ill.what));
    json.field("value", ill.finding.value);
    json.field("since", ill.since);
    json.field("sentence", ill.finding.sentence);
    json.end();
  }
  json.end_list();
  json.end();
  return json.text();
}

}  // namespace torchtap::views::explorer::detail
