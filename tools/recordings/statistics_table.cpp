#include "statistics_table.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>
#include <utility>

#include <torchtap/base/error.hpp>

#include "files/csv.hpp"
#include "files/json.hpp"
#include "recorded_facts.hpp"
#include "statistics.hpp"
#include "terminal/drawing.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr std::size_t kSpark = 16;
constexpr int kSummaryDigits = 4;

struct Row {
  const Layer* layer;
  Statistics statistics;
  std::vector<std::string> marks;
};

/// A result that at least one row has.
struct Column {
  std::string name;   // full name: "moments.std"
  std::string title;  // "std" if unambiguous
  bool detail = false;
  bool histogram = false;
};

std::vector<Row> rows_of(const Layers& layers) {
  auto recorded = recorded_tensors(layers, /*with_samples=*/false);
  const auto findings = findings_of(recorded);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    rows.push_back({recorded[i].layer, std::move(recorded[i].statistics), {}});
    for (const auto& finding : findings[i]) rows.back().marks.push_back(finding.rule);
  }
  return rows;
}

/// Numbers first, then details of histograms and sketches, then histograms. A title is the last part of the
/// name if no other column would have it; details do not count as other columns.
std::vector<Column> columns_of(const std::vector<Row>& rows) {
  std::vector<Column> columns;
  std::set<std::string> known;
  for (const auto& row : rows) {
    for (const auto& one : row.statistics.all) {
      if (known.insert(one.name).second)
        columns.push_back({one.name, one.base(), one.detail, one.bins.has_value()});
    }
  }
  static const auto& taken = *new const std::set<std::string>{"index",     "path",    "slot", "type", "kind",
                                                              "reduction", "samples", "mark", "marks"};
  std::map<std::string, int> plain, all;
  for (const auto& column : columns) {
    ++all[column.title];
    if (!column.detail) ++plain[column.title];
  }
  for (auto& column : columns) {
    if ((column.detail ? all : plain)[column.title] > 1) column.title = column.name;
    if (taken.count(column.title) != 0) {
      column.title = column.name == column.title ? "result." + column.name : column.name;
    }
  }
  const auto rank = [](const Column& column) { return column.histogram ? 2 : column.detail ? 1 : 0; };
  std::stable_sort(columns.begin(), columns.end(),
                   [&](const Column& a, const Column& b) { return rank(a) < rank(b); });
  return columns;
}

int importance_of(const Column& column) {
  static const auto& known = *new const std::map<std::string, int>{
      {"std", 90},      {"mean", 88}, {"max", 84},      {"min", 82},    {"abs_max", 80},
      {"norm", 78},     {"nan", 74},  {"inf", 73},      {"zeros", 72},  {"skewness", 60},
      {"kurtosis", 58}, {"rows", 40}, {"elements", 38}, {"indices", 36}};
  if (column.detail) return 34;
  if (column.histogram) return 76;
  const auto found = known.find(base_of(column.name));
  return found == known.end() ? 66 : found->second;
}

std::string number(double value, bool whole, int digits) {
  if (whole && std::abs(value) < 1e15) return std::to_string(static_cast<std::int64_t>(value));
  return to_text(value, digits);
}

std::string cell(const Statistic* one, std::size_t spark, int digits = kSummaryDigits) {
  if (one == nullptr) return "-";
  if (one->bins.has_value()) return sparkline(one->bins->total(), spark);
  if (one->elements == 0) return "-";
  if (one->single()) return number(one->value(), one->whole, digits);
  if (std::isnan(one->low)) return one->nan > 0 ? "nan" : "inf";
  if (one->low == one->high) return number(one->low, one->whole, digits);
  return number(one->low, one->whole, digits - 1) + (utf8_locale() ? " … " : " .. ") +
         number(one->high, one->whole, digits - 1);
}

std::string path_of(const Row& row) {
  return shown_path(row.layer->path, row.statistics.slot) + keys_text(row.statistics.keys);
}

std::string joined(const std::vector<std::string>& words, const char* separator = " ") {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

Json exact(double value, bool whole) {
  if (whole && std::abs(value) < 9e15) return static_cast<std::int64_t>(value);
  return value;
}

Json statistic_to_json(const Statistic& one) {
  if (one.bins.has_value()) {
    Json counts = Json::array();
    for (const double count : one.bins->total()) counts.push_back(exact(count, true));
    return {{"counts", std::move(counts)}, {"edges", one.bins->edge_list()}};
  }
  if (one.single()) return one.range ? Json(one.range->first) : Json(one.value());
  return {{"min", one.range ? Json(one.range->first) : Json(one.low)},
          {"max", one.range ? Json(one.range->second) : Json(one.high)},
          {"elements", one.elements},
          {"nan", one.nan},
          {"inf", one.inf}};
}

/// Sorts by `by`. Rows without a number there come last.
void sort(std::vector<Row>& rows, const std::vector<Column>& columns, const std::string& by) {
  const bool smallest = by.rfind('-', 0) == 0;
  const std::string name = by.substr(smallest ? 1 : 0);
  if (name == "path" || name == "type") {
    const auto text = [&](const Row& row) {
      return name == "path" ? row.layer->path : row.layer->entry.type();
    };
    std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
      return smallest ? text(b) < text(a) : text(a) < text(b);
    });
    return;
  }
  std::vector<std::string> names{"index", "path", "type", "samples"};
  const Column* column = nullptr;
  for (const auto& one : columns) {
    if (one.histogram) continue;
    names.push_back(one.title);
    if (one.title == name || (column == nullptr && one.name == name)) column = &one;
  }
  TORCH_CHECK_INDEX(column != nullptr || name == "index" || name == "samples",
                    "--sort: there is no column \"", name, "\"; the columns are ", base::quoted(names), ".");
  const auto key = [&](const Row& row) -> double {
    if (column == nullptr) {
      return static_cast<double>(name == "index" ? row.layer->index : row.layer->entry.samples());
    }
    const Statistic* one = row.statistics.find(column->name);
    if (one == nullptr || one->elements == 0) return NAN;
    return one->single() ? one->value() : one->high;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    const double x = key(a);
    const double y = key(b);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return smallest ? x < y : x > y;
  });
}

/// The value of `of(row)` if it is the same in all rows; otherwise "".
template <class Of>
std::string in_all(const std::vector<Row>& rows, const Of& of) {
  for (const auto& row : rows) {
    if (of(row) != of(rows.front())) return "";
  }
  return rows.empty() ? "" : of(rows.front());
}

/// Says how many rows were left out: "relu3: 37 rows without a key of labels", once for each `by`.
std::vector<std::string> left_out(const std::vector<Row>& rows) {
  std::vector<std::string> all;
  for (const auto& row : rows) {
    const Keys &keys = row.statistics.keys, &counts = row.statistics.left_out;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto& [name, count] = counts[i];
      if (count == 0) continue;
      const Keys around(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i));
      std::string text = shown_path(row.layer->path, row.statistics.slot) + keys_text(around) + ": " +
                         counted(count, "row") + " without a key of " + printable(name);
      if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
    }
  }
  return all;
}

/// Prints the lines under the table: what was recorded, the ranges of the histograms, the rows that were left
/// out, and the meaning of the marks.
void print_legend(const std::vector<Row>& rows, const std::vector<Column>& columns) {
  std::set<std::int64_t> modules;
  for (const auto& row : rows) modules.insert(row.layer->index);
  std::vector<std::string> about{counted(static_cast<std::int64_t>(modules.size()), "module")};
  const auto say = [&](const std::string& text) {
    if (!text.empty()) about.push_back(text);
  };
  say(in_all(rows, [](const Row& row) { return row.layer->entry.kind(); }));
  const std::string samples =
      in_all(rows, [](const Row& row) { return counted(row.layer->entry.samples(), "sample"); });
  if (!samples.empty()) say(samples + " each");
  say(in_all(rows, [](const Row& row) { return row.layer->entry.reduction(); }));
  std::cout << '\n';
  print_wrapped(std::cout, joined(about, ", "));

  for (const auto& column : columns) {
    if (!column.histogram) continue;
    const std::string range = in_all(rows, [&](const Row& row) -> std::string {
      const Statistic* one = row.statistics.find(column.name);
      if (one == nullptr || !one->bins.has_value()) return "";
      const auto edges = one->bins->edge_list();
      return std::to_string(edges.size() - 1) + " bins from " + to_text(edges.front()) + " to " +
             to_text(edges.back());
    });
    print_wrapped(std::cout, column.title + ": " + (range.empty() ? "each row has its own range" : range));
  }
  for (const auto& text : left_out(rows)) print_wrapped(std::cout, text);
  const Layer* last = nullptr;
  for (const auto& row : rows) {
    if (std::exchange(last, row.layer) != row.layer) print_note(*row.layer);
  }
  std::set<std::string> marked;
  for (const auto& row : rows) marked.insert(row.marks.begin(), row.marks.end());
  for (const auto& rule : rules::catalogue()) {
    if (marked.count(rule.name) != 0) print_wrapped(std::cout, rule.name + ": " + meaning_of(rule.name));
  }
}

void print_table(const std::vector<Row>& rows, const std::vector<Column>& columns,
                 const std::string& sorted_by) {
  using Align = Table::Align;
  const auto same = [&](const auto& of) {
    return std::all_of(rows.begin(), rows.end(), [&](const Row& row) { return of(row) == of(rows.front()); });
  };
  const bool kinds = !same([](const Row& row) { return row.layer->entry.kind(); });
  const bool reductions = !same([](const Row& row) { return row.layer->entry.reduction(); });
  const bool samples = !same([](const Row& row) { return row.layer->entry.samples(); });
  const bool marks = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.marks.empty(); });

  const auto important = [&](const std::string& title, int otherwise) {
    return sorted_by == title || sorted_by == "-" + title ? Table::kAlways : otherwise;
  };
  std::vector<Table::Column> titles{{"index", Align::right, important("index", 20)},
                                    {"path", Align::left, Table::kAlways, 20, true},
                                    {"type", Align::left, important("type", 50), 8}};
  if (kinds) titles.push_back({"kind", Align::left, 48});
  if (reductions) titles.push_back({"reduction", Align::left, 30, 12});
  if (samples) titles.push_back({"samples", Align::right, important("samples", 25)});
  for (const auto& column : columns) {
    titles.push_back({column.title, column.histogram ? Align::left : Align::right,
                      important(column.title, important(column.name, importance_of(column)))});
  }
  if (marks) titles.push_back({"mark"});

  const auto table_with = [&](std::size_t spark) {
    Table table(titles);
    table.folds_constant_columns();
    for (const auto& row : rows) {
      const auto& entry = row.layer->entry;
      std::vector<std::string> line{std::to_string(row.layer->index), path_of(row),
                                    or_dash(type_text(entry.type()))};
      if (kinds) line.push_back(entry.kind());
      if (reductions) line.push_back(entry.reduction().empty() ? "-" : entry.reduction());
      if (samples) line.push_back(std::to_string(entry.samples()));
      for (const auto& column : columns) line.push_back(cell(row.statistics.find(column.name), spark));
      if (marks) line.push_back(joined(row.marks));
      table.add(std::move(line));
    }
    return table;
  };
  const Table wide = table_with(2 * kSpark);
  (wide.width() > line_width() ? table_with(kSpark) : wide).print(std::cout);
  print_legend(rows, columns);
}

Json results_to_json(const Row& row, const std::vector<Column>& columns) {
  Json statistics = Json::object();
  for (const auto& column : columns) {
    if (const Statistic* one = row.statistics.find(column.name))
      statistics[column.title] = statistic_to_json(*one);
  }
  return statistics;
}

void print_json(const Layers& layers, const std::vector<Row>& rows, const std::vector<Column>& columns,
                const std::string& path) {
  Json entries = Json::array();
  for (const auto& row : rows) {
    Json entry = describe(*row.layer);
    if (row.statistics.slot >= 0) entry["slot"] = row.statistics.slot;
    for (const auto& [name, key] : row.statistics.keys) entry["keys"][name] = key;
    for (const auto& [name, count] : row.statistics.left_out) entry["left_out"][name] = count;
    entry["marks"] = row.marks;
    entry["statistics"] = results_to_json(row, columns);
    entries.push_back(std::move(entry));
  }
  print(Json{{"path", path},
             {"library", layers.library},
             {"created", layers.created},
             {"entries", std::move(entries)}});
}

void print_rows(const std::vector<Row>& rows, const std::vector<Column>& columns) {
  Json list = Json::array();
  for (const auto& row : rows) {
    Json line{{"index", row.layer->index}, {"path", row.layer->path}};
    if (row.statistics.slot >= 0) line["slot"] = row.statistics.slot;
    for (const auto& [name, key] : row.statistics.keys) line[name] = key;
    line.update({{"type", row.layer->entry.type()},
                 {"kind", row.layer->entry.kind()},
                 {"samples", row.layer->entry.samples()},
                 {"marks", row.marks}});
    line.update(results_to_json(row, columns));
    list.push_back(std::move(line));
  }
  print_csv(list);
}

}  // namespace

void print_summary(const Layers& layers, const SummaryOptions& options) {
  auto rows = rows_of(layers);
  auto columns = columns_of(rows);
  if (!options.sort.empty()) sort(rows, columns, options.sort);
  if (!options.entry.empty()) {
    const auto index = layers.at(options.entry).index;
    rows.erase(
        std::remove_if(rows.begin(), rows.end(), [&](const Row& row) { return row.layer->index != index; }),
        rows.end());
  }
  if (!options.result.empty()) {
    std::vector<std::string> names;
    names.reserve(columns.size());
    for (const auto& column : columns) names.push_back(column.title);
    columns.erase(std::remove_if(columns.begin(), columns.end(),
                                 [&](const Column& column) {
                                   return column.title != options.result && column.name != options.result;
                                 }),
                  columns.end());
    TORCH_CHECK_INDEX(!columns.empty(), "--result: there is no column \"", options.result,
                      "\"; the columns are ", base::quoted(names), ".");
  }
  switch (options.format) {
    case Format::table:
      return print_table(rows, columns, options.sort);
    case Format::json:
      return print_json(layers, rows, columns, options.path);
    case Format::csv:
      return print_rows(rows, columns);
  }
}

void print_results(const Layer& layer) {
  using Align = Table::Align;
  for (const auto& slot : statistics_of(layer.entry)) {
    std::cout << path_of({&layer, slot, {}}) << '\n';
    Table table({{"result", Align::left, Table::kAlways, 12},
                 {"elements", Align::right, 10},
                 {"value", Align::right}});
    for (const auto& one : slot.all) {
      if (!one.bins.has_value()) table.add({one.name, std::to_string(one.elements), cell(&one, 0, 6)});
    }
    table.print(std::cout);
    for (const auto& one : slot.all) {
      if (!one.bins.has_value()) continue;
      std::cout << printable(one.name) << '\n';
      const Bins shown = one.bins->drawn();
      print_histogram(std::cout, shown.total(), shown.edge_list());
    }
  }
}

}  // namespace torchtap::tools
