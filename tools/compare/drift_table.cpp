#include "drift_table.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "files/csv.hpp"
#include "files/json.hpp"
#include "recordings/statistics_table.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr int kDigits = 3;

std::string path_of(const Drift& drift) {
  return shown_path(drift.pair.either().path, drift.slot) + keys_text(drift.keys);
}

std::string number(const std::optional<double>& value, bool sign = false) {
  if (!value.has_value()) return "-";
  return (sign && *value > 0 ? "+" : "") + to_text(*value, kDigits);
}

std::string largest_change(const Drift& drift) {
  const Change* change = drift.largest();
  if (change == nullptr || change->relative == 0) return "-";
  return base_of(change->name) + " " + to_text(change->a, kDigits) + (utf8_locale() ? " → " : " -> ") +
         to_text(change->b, kDigits);
}

Json drift_to_json(const Drift& drift) {
  const Layer& layer = drift.pair.either();
  Json entry{{"path", layer.path}};
  if (drift.slot >= 0) entry["slot"] = drift.slot;
  for (const auto& [name, key] : drift.keys) entry["keys"][name] = key;
  const auto samples = [](const Layer* of) {
    return of == nullptr ? Json(nullptr) : Json(of->entry.samples());
  };
  entry.update({{"type", layer.entry.type()},
                {"status", drift.status},
                {"detail", drift.detail},
                {"distance", drift.distance},
                {"mean_shift", drift.shift},
                {"std_ratio", drift.ratio},
                {"wasserstein", drift.wasserstein},
                {"wasserstein_unit", !drift.wasserstein.has_value() ? Json(nullptr)
                                     : drift.in_deviations          ? Json("std of A")
                                                                    : Json("value")},
                {"zeros_share", drift.zeros},
                {"samples", {{"a", samples(drift.pair.a)}, {"b", samples(drift.pair.b)}}}});
  Json changes = Json::object();
  for (const auto& change : drift.others) {
    changes[change.name] = {
        {"a", change.a}, {"b", change.b}, {"absolute", change.b - change.a}, {"relative", change.relative}};
  }
  entry["changes"] = std::move(changes);
  return entry;
}

void print_table(const std::vector<Drift>& drifts, double tolerance, const Drift* first) {
  using Align = Table::Align;
  const auto any = [&](const auto& has) { return std::any_of(drifts.begin(), drifts.end(), has); };
  const bool shifts = any([](const Drift& drift) { return drift.shift.has_value(); });
  const bool ratios = any([](const Drift& drift) { return drift.ratio.has_value(); });
  const bool histograms = any([](const Drift& drift) { return drift.wasserstein.has_value(); });
  const bool deviations = any([](const Drift& drift) { return drift.in_deviations; });
  const bool zeros = any([](const Drift& drift) { return drift.zeros.has_value(); });
  const bool others = any([](const Drift& drift) { return drift.largest() != nullptr; });

  std::vector<Table::Column> titles{{"path", Align::left, Table::kAlways, 20, true},
                                    {"type", Align::left, 40, 8},
                                    {"distance", Align::right}};
  if (shifts) titles.push_back({"shift", Align::right, 90});
  if (ratios) titles.push_back({"std ratio", Align::right, 85});
  if (histograms) titles.push_back({"W1", Align::right, 80});
  if (zeros) titles.push_back({"zeros", Align::right, 70});
  if (others) titles.push_back({"other", Align::left, 60});
  titles.push_back({"status"});
  Table table(std::move(titles));
  table.folds_constant_columns();
  for (const auto& drift : drifts) {
    std::vector<std::string> row{path_of(drift), or_dash(type_text(drift.pair.either().entry.type())),
                                 to_text(drift.distance, kDigits)};
    if (shifts) row.push_back(number(drift.shift, true));
    if (ratios) row.push_back(number(drift.ratio));
    if (histograms) row.push_back(number(drift.wasserstein));
    if (zeros) row.push_back(number(drift.zeros, true));
    if (others) row.push_back(largest_change(drift));
    row.push_back(drift.status);
    table.add(std::move(row));
  }
  const auto shown = table.print(std::cout);

  std::cout << '\n';
  const auto say = [&](const std::string& text) { print_wrapped(std::cout, text); };
  const auto explain = [&](const std::string& title, const std::string& text) {
    if (shown.count(title) != 0) say(title + ": " + text);
  };
  explain("shift", "of the mean, in standard deviations of A");
  explain("std ratio", "the standard deviation of B divided by that of A");
  explain("W1", std::string("Wasserstein distance of the histograms, in ") +
                    (deviations ? "standard deviations of A" : "the unit of the values"));
  explain("zeros", "change of the fraction of zeros");
  explain("other", "the other result that changed most");
  if (drifts.empty()) return say("There are no modules.");
  const std::string limit = to_text(tolerance, 6);
  if (first == nullptr)
    return say("All " + std::to_string(drifts.size()) + " rows are within " + limit + ".");
  const auto count =
      std::count_if(drifts.begin(), drifts.end(), [](const Drift& drift) { return !drift.agrees(); });
  const std::string detail = first->detail.empty() ? "" : " (" + first->detail + ")";
  say(std::to_string(count) + " of " + std::to_string(drifts.size()) + " rows are not within " + limit +
      "; the first in the model is " + path_of(*first) + ": " + first->status + detail + ".");
}

}  // namespace

void print_drifts(std::vector<Drift> drifts, const DriftOptions& options) {
  // Sorting loses the order of the forward.
  const auto found =
      std::find_if(drifts.begin(), drifts.end(), [](const Drift& drift) { return !drift.agrees(); });
  const std::optional<Drift> first = found == drifts.end() ? std::nullopt : std::optional<Drift>(*found);
  std::stable_sort(drifts.begin(), drifts.end(),
                   [](const Drift& one, const Drift& other) { return one.distance > other.distance; });
  if (options.format == Format::table) {
    return print_table(drifts, options.tolerance, first.has_value() ? &*first : nullptr);
  }
  Json entries = Json::array();
  for (const auto& drift : drifts) entries.push_back(drift_to_json(drift));
  if (options.format == Format::csv) return print_csv(entries);
  print(Json{{"a", options.a},
             {"b", options.b},
             {"tolerance", options.tolerance},
             {"agree", !first.has_value()},
             {"first", first.has_value() ? Json(first->pair.either().path) : Json(nullptr)},
             {"entries", std::move(entries)}});
}

}  // namespace torchtap::tools
