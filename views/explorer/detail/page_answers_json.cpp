// Runs, series, scalars and health as JSON.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/explorer/detail/control.hpp>
#include <torchtap/views/explorer/detail/json.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>
#include <torchtap/views/watch/verdict.hpp>

namespace torchtap::views::explorer::detail {
namespace {

void write_last(Json& json, const Column& last) {
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

/// What is noticed of one series.
struct Mark {
  const char* kind;
  double value;
  std::int64_t since;
};

/// The first step from which on `holds` was true for each column; nothing if it is not true now.
template <class Function>
std::optional<std::int64_t> since_when(const Series& series, Function&& holds) {
  std::optional<std::int64_t> since;
  for (auto column = series.columns().rbegin(); column != series.columns().rend() && holds(*column); ++column)
    since = column->first_step;
  return since;
}

/// The share of the values whose magnitude is more than `limit`.
double share_above(const Column& column, double limit) {
  std::uint64_t above = column.posinf + column.neginf;
  for (const auto& [index, count] : unpack(column.bins, column.n_bins)) {
    if (std::abs(middle_of(index)) > limit) above += count;
  }
  return column.count == 0 ? 0 : static_cast<double>(above) / static_cast<double>(column.count);
}

std::vector<Mark> marks_of(const Series& series, const std::string& type, bool has_modules_inside) {
  constexpr double most_saturated = 0.9;
  std::vector<Mark> marks;
  const auto add = [&](const char* kind, const auto& value, double least) {
    const auto holds = [&](const Column& column) { return value(column) >= least; };
    if (const auto since = since_when(series, holds))
      marks.push_back({kind, value(series.columns().back()), *since});
  };
  if (series.key().what != What::output) return marks;
  if (!has_modules_inside) {
    const auto share_of_zeros = [](const Column& c) {
      return c.count == 0 ? 0 : static_cast<double>(c.zeros) / static_cast<double>(c.count);
    };
    add("dead", share_of_zeros, watch::dead_share);
  }
  if (type == "Tanh" || type == "Sigmoid" || type == "Softsign" || type == "Hardtanh")
    add(
        "saturated", [](const Column& c) { return share_above(c, 0.97); }, most_saturated);
  return marks;
}

/// The gradient of all parameters of a module, over the steps that a column takes in.
struct ModuleGradient {
  double squares = 0;
  std::uint64_t elements = 0, finite = 0;

  double root_mean_square() const {
    if (finite < elements) return std::numeric_limits<double>::infinity();
    return elements == 0 ? 0 : std::sqrt(squares / static_cast<double>(elements));
  }
};

/// Of the gradients of modules, which are taken in the order in which they first ran; with the call of each.
std::vector<std::pair<std::int32_t, Mark>> gradient_marks(const Run& run) {
  std::map<std::int32_t, std::map<std::int64_t, ModuleGradient>> of_calls;  // by a column's first step
  run.each_series([&](const Series& series) {
    if (series.key().what != What::parameter_grad) return;
    for (const Column& column : series.columns()) {
      ModuleGradient& gradient = of_calls[series.key().call][column.first_step];
      gradient.squares += column.sum_squares;
      gradient.elements += column.count;
      gradient.finite += column.finite();
    }
  });
  std::vector<std::pair<std::int32_t, Mark>> marks;
  std::map<std::int64_t, double> before;
  for (const auto& [call, columns] : of_calls) {
    watch::Gradient verdict = watch::Gradient::healthy;
    Mark mark{};
    for (const auto& [step, gradient] : columns) {
      double& previous = before[step];
      mark.value = gradient.root_mean_square();
      const watch::Gradient now = watch::verdict_on_gradient(mark.value, previous);
      if (now != verdict) mark.since = step;
      verdict = now;
      if (mark.value > 0 && std::isfinite(mark.value)) previous = mark.value;
    }
    if (verdict == watch::Gradient::healthy) continue;
    mark.kind = verdict == watch::Gradient::exploding ? "exploding" : "vanishing";
    marks.emplace_back(call, mark);
  }
  return marks;
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

/// What a call was given, in one direction.
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
    if (series.update()) {
      json.field("update_ratio", series.update()->ratio);
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
  const auto names = run.call_names();
  std::set<std::int32_t> parents;
  for (const auto& [call, name] : names) parents.insert(name.parent);
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
  const auto write = [&](std::int32_t call, const char* what, const Mark& mark) {
    json.begin();
    json.field("call", call);
    json.field("kind", mark.kind);
    json.field("what", what);
    json.field("value", mark.value);
    json.field("since", mark.since);
    json.end();
  };
  for (const auto& [call, mark] : gradient_marks(run)) write(call, name_of(What::parameter_grad), mark);
  run.each_series([&](const Series& series) {
    const std::int32_t call = series.key().call;
    const auto name = names.find(call);
    std::vector<Mark> marks =
        marks_of(series, name == names.end() ? "" : name->second.type, parents.count(call) > 0);
    const auto count = static_cast<double>(std::max<std::uint64_t>(series.last().count, 1));
    if (series.first_nan)
      marks.push_back({"nan", static_cast<double>(series.last().nan) / count, *series.first_nan});
    if (series.first_inf)
      marks.push_back({"inf", static_cast<double>(series.last().posinf + series.last().neginf) / count,
                       *series.first_inf});
    if (const auto& update = series.update(); update && update->since)
      marks.push_back({"update_ratio", update->ratio, *update->since});
    for (const Mark& mark : marks) write(call, name_of(series.key().what), mark);
  });
  json.end_list();
  json.end();
  return json.text();
}

}  // namespace torchtap::views::explorer::detail
