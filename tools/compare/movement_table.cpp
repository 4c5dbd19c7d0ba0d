#include "movement_table.hpp"

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

std::string path_of(const Movement& movement) {
  return shown_path(movement.pair.either().path, movement.slot) + keys_text(movement.keys);
}

std::string number(const std::optional<double>& value, bool sign = false) {
  if (!value.has_value()) return "-";
  return (sign && *value > 0 ? "+" : "") + to_text(*value, kDigits);
}

std::string largest_change(const Movement& movement) {
  const Change* change = movement.largest();
  if (change == nullptr || change->relative == 0) return "-";
  return base_of(change->name) + " " + to_text(change->a, kDigits) + (utf8_locale() ? " → " : " -> ") +
         to_text(change->b, kDigits);
}

Json movement_to_json(const Movement& movement) {
  const Layer& layer = movement.pair.either();
  Json entry{{"path", layer.path}};
  if (movement.slot >= 0) entry["slot"] = movement.slot;
  for (const auto& [name, key] : movement.keys) entry["keys"][name] = key;
  const auto samples = [](const Layer* of) {
    return of == nullptr ? Json(nullptr) : Json(of->entry.samples());
  };
  entry.update({{"type", layer.entry.type()},
                {"status", movement.status},
                {"judged_by", movement.judged ? "blocks" : "distance"},
                {"detail", movement.detail},
                {"distance", movement.distance},
                {"mean_shift", movement.shift},
                {"std_ratio", movement.ratio},
                {"wasserstein", movement.wasserstein},
                {"wasserstein_unit", !movement.wasserstein.has_value() ? Json(nullptr)
                                     : movement.in_deviations          ? Json("std of A")
                                                                       : Json("value")},
                {"zeros_share", movement.zeros},
                {"samples", {{"a", samples(movement.pair.a)}, {"b", samples(movement.pair.b)}}}});
  Json changes = Json::object();
  for (const auto& change : movement.others) {
    changes[change.name] = {
        {"a", change.a}, {"b", change.b}, {"absolute", change.b - change.a}, {"relative", change.relative}};
  }
  entry["changes"] = std::move(changes);
  return entry;
}

/// How many rows are judged by which rule. Nothing of rows that could not be compared. Notes say why blocks
/// did not judge, where A has them.
std::string judges_of(const std::vector<Movement>& movements, const std::string& tolerance,
                      const std::vector<std::string>& notes) {
  const auto judged =
      std::count_if(movements.begin(), movements.end(), [](const auto& one) { return one.judged; });
  const auto all = static_cast<std::int64_t>(movements.size());
  const std::string by_blocks =
      "as torchtap check --against does, by how much blocks of A differ from each other.";
  if (judged == all) return "Judged " + by_blocks;
  if (judged != 0)
    return c10::str(judged, " of ", all, " rows are judged ", by_blocks,
                    " The others have no blocks to judge by: distances are compared with ", tolerance,
                    ", and it is not known what chance gives.");
  return "Distances are compared with " + tolerance + ". It is not known what chance gives" +
         (notes.empty() ? ": blocks of A would tell (record --learn)." : ".");
}

void print_table(const std::vector<Movement>& movements, const MovementOptions& options,
                 const Movement* first) {
  using Align = Table::Align;
  const std::string limit = to_text(options.tolerance, 6);
  if (!movements.empty()) {
    print_wrapped(std::cout, judges_of(movements, limit, options.notes));
    for (const auto& note : options.notes) print_wrapped(std::cout, note);
    std::cout << '\n';
  }
  const auto any = [&](const auto& has) { return std::any_of(movements.begin(), movements.end(), has); };
  const bool shifts = any([](const Movement& movement) { return movement.shift.has_value(); });
  const bool ratios = any([](const Movement& movement) { return movement.ratio.has_value(); });
  const bool histograms = any([](const Movement& movement) { return movement.wasserstein.has_value(); });
  const bool deviations = any([](const Movement& movement) { return movement.in_deviations; });
  const bool zeros = any([](const Movement& movement) { return movement.zeros.has_value(); });
  const bool others = any([](const Movement& movement) { return movement.largest() != nullptr; });

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
  for (const auto& movement : movements) {
    std::vector<std::string> row{path_of(movement), or_dash(type_text(movement.pair.either().entry.type())),
                                 to_text(movement.distance, kDigits)};
    if (shifts) row.push_back(number(movement.shift, true));
    if (ratios) row.push_back(number(movement.ratio));
    if (histograms) row.push_back(number(movement.wasserstein));
    if (zeros) row.push_back(number(movement.zeros, true));
    if (others) row.push_back(largest_change(movement));
    row.push_back(movement.status);
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
  if (movements.empty()) return say("There are no modules.");
  if (first == nullptr) return say("All " + std::to_string(movements.size()) + " rows agree.");
  const auto count = std::count_if(movements.begin(), movements.end(),
                                   [](const Movement& movement) { return !movement.agrees(); });
  const std::string detail = first->detail.empty() ? "" : " (" + first->detail + ")";
  say(std::to_string(count) + " of " + std::to_string(movements.size()) +
      " rows do not agree; the first in the model is " + path_of(*first) + ": " + first->status + detail +
      ".");
}

}  // namespace

void print_movements(std::vector<Movement> movements, const MovementOptions& options) {
  // Sorting loses the order of the forward.
  const auto found = std::find_if(movements.begin(), movements.end(),
                                  [](const Movement& movement) { return !movement.agrees(); });
  const std::optional<Movement> first =
      found == movements.end() ? std::nullopt : std::optional<Movement>(*found);
  std::stable_sort(movements.begin(), movements.end(),
                   [](const Movement& one, const Movement& other) { return one.distance > other.distance; });
  if (options.format == Format::table) {
    return print_table(movements, options, first.has_value() ? &*first : nullptr);
  }
  Json entries = Json::array();
  for (const auto& movement : movements) entries.push_back(movement_to_json(movement));
  if (options.format == Format::csv) return print_csv(entries);
  print(Json{{"a", options.a},
             {"b", options.b},
             {"tolerance", options.tolerance},
             {"notes", options.notes},
             {"agree", !first.has_value()},
             {"first", first.has_value() ? Json(first->pair.either().path) : Json(nullptr)},
             {"entries", std::move(entries)}});
}

}  // namespace torchtap::tools
