#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>

#include "commands.hpp"
#include "comparison.hpp"
#include "csv.hpp"
#include "drift.hpp"
#include "drift_table.hpp"
#include "json.hpp"
#include "large_results.hpp"
#include "message_text.hpp"
#include "module_pairs.hpp"
#include "option_checks.hpp"
#include "progress.hpp"
#include "recordings.hpp"
#include "statistics.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "traces.hpp"

namespace torchtap::tools {
namespace {

constexpr char kDiffExamples[] = R"(
Compares two recordings module by module. Modules are matched by path or alias, regardless of their type. Two single
.pt files are matched regardless of their names.

Recordings of samples are compared number by number, the i-th sample with the i-th. Two numbers agree if
|a - b| <= atol + rtol * |b|, or if both are NaN, as in torch.allclose. "max rel" is the largest |a - b| / |b|,
"cosine" the cosine of the angle between all values of A and all values of B. The first difference is the first in the
order in which the calls returned, if one side is a folder with that order (calls.json). Otherwise it is the first in
the order of A, except that a module comes after its submodules (before them in recordings of inputs), and that the
first calls of all modules in a forward come before the second ones.

Recordings of statistics (of other data, another training step, another release) are compared as distributions, and
the module that moved most comes first. The number of samples may differ. A module's distance is the largest of
  |shift|        of the mean, in standard deviations of A
  |ln ratio|     of the standard deviations
  W1             the Wasserstein-1 distance of the histograms, in standard deviations of A, or in the unit of the values
                 if that is unknown. The edges may differ; values are assumed to be spread evenly over their bin, and
                 values outside the range to be at the outermost edge. W1 is shown but does not count if A's deviation
                 is less than a bin, or if the edges differ and W1 is less than a bin
  |zeros|        the change of the fraction of zeros
and, without moments and histogram, also the largest relative change of the other results. For elementwise results
each is that of the element that moved most. Two modules agree if their distance is at most --tolerance. They do not
agree if only one side has NaN or infinities. With --rtol or --atol statistics too are compared number by number.

Two traces (torchtap trace --save) are compared operation by operation, in the order in which they ran. Where the
programs differ, what both ran before and after that is compared, and the rest is named. Of tensors that one side did
not keep, shape and dtype are compared.

Either side may be a recording, a single .pt file, or a folder that a Python program wrote: names.json, a JSON list
of module paths; for the i-th of them i.pt, the list of tensors that its calls returned, written by torch.save; and
optionally calls.json, a list of the i of each call in the order in which they returned. torchtap.record in
Python writes such a folder for any PyTorch model with plain hooks:

  from torchtap.record import record_folder
  with record_folder(model, "original"):
      model(images)

Examples:
  torchtap diff original/ port/
  torchtap diff monday/ tuesday/ --rtol 0 --atol 0          # bit by bit
  torchtap diff original/ port/ --json | jq -r .first
  torchtap diff before/ after/                              # two traces
  torchtap diff stats-train/ stats-test/                    # from: record … --reduce moments,histogram:64:-4:4,count
  torchtap diff stats-v1/ stats-v2/ --tolerance 0.02 --csv > drift.csv

Exit status: 0 if all agree within the tolerance; 1 if some do not, or a module has samples on one side only; 2 if
something cannot be read. A module without samples on both sides, or that one side lacks, agrees.)";

struct DiffOptions {
  std::string a;
  std::string b;
  double rtol = 1e-5;
  double atol = 1e-8;
  double tolerance = 0.1;
  bool json = false;
  bool csv = false;

  Format format() const { return json ? Format::json : csv ? Format::csv : Format::table; }
  Tolerance tolerance_of_values() const { return {rtol, atol}; }
};

/// Compares two lists of samples, those of one shape together: a call of LibTorch for each of a million small
/// samples would take minutes.
class Samples {
 public:
  Samples(const std::string& name, const Tolerance& tolerance, Comparison& result)
      : name_(name), tolerance_(tolerance), result_(result) {}

  void compare(const Result& a, const Result& b) {
    TensorReader of_a(a), of_b(b);
    const at::Tensor* mine = of_a.next();
    const at::Tensor* theirs = of_b.next();
    std::int64_t both = 0;
    for (; mine != nullptr && theirs != nullptr; mine = of_a.next(), theirs = of_b.next(), ++both) {
      add(*mine, *theirs);
    }
    flush();
    if (mine == nullptr && theirs == nullptr) return;
    std::int64_t size_a = both, size_b = both;
    for (; mine != nullptr; mine = of_a.next()) ++size_a;
    for (; theirs != nullptr; theirs = of_b.next()) ++size_b;
    result_.fail("samples differ in number", c10::str(size_a, " in A and ", size_b, " in B"), both);
  }

 private:
  static bool like(const at::Tensor& one, const at::Tensor& other) {
    return one.defined() && other.defined() && one.sizes() == other.sizes() &&
           one.scalar_type() == other.scalar_type();
  }

  void add(const at::Tensor& a, const at::Tensor& b) {
    constexpr std::int64_t kSmall = 4096, kElements = std::int64_t{1} << 20;
    if (!a_.empty() && (!like(a, a_.front()) || !like(b, b_.front()) ||
                        a.numel() * static_cast<std::int64_t>(a_.size()) > kElements))
      flush();
    a_.push_back(a);
    b_.push_back(b);
    const bool together = a.defined() && b.defined() && a.sizes() == b.sizes() && a.numel() <= kSmall;
    if (!together) flush();
  }

  void flush() {
    if (a_.size() > 1) {
      Comparison all = result_;
      tools::compare(at::stack(a_), at::stack(b_), "", 0, tolerance_, all);
      if (all.agrees() || !result_.agrees()) {  // otherwise, one by one, to say which is the first
        result_ = all;
        first_ += static_cast<std::int64_t>(a_.size());
        a_.clear();
        b_.clear();
      }
    }
    for (std::size_t i = 0; i < a_.size(); ++i, ++first_) {
      const std::string where = (name_.empty() ? "sample " : name_ + ", sample ") + std::to_string(first_);
      tools::compare(a_[i], b_[i], where, first_, tolerance_, result_);
    }
    a_.clear();
    b_.clear();
  }

  const std::string& name_;
  const Tolerance tolerance_;
  Comparison& result_;
  std::int64_t first_ = 0;  // of those that wait
  std::vector<at::Tensor> a_, b_;
};

Comparison compare(const Layer& a, const Layer& b, const DiffOptions& options) {
  Comparison result;
  const auto of_a = results_on_disk(a.entry);
  const auto of_b = results_on_disk(b.entry);
  result.samples = a.entry.samples();
  // Folders written by Python do not declare a kind.
  if (!a.entry.kind().empty() && !b.entry.kind().empty() && a.entry.kind() != b.entry.kind()) {
    result.fail("not of the same kind", a.entry.kind() + " and " + b.entry.kind());
  }
  if (of_a.empty() != of_b.empty()) {
    result.fail(of_a.empty() ? "no samples in A" : "no samples in B", "");
  }
  for (const auto& mine : of_a) {
    const auto theirs =
        std::find_if(of_b.begin(), of_b.end(), [&](const Result& other) { return other.name == mine.name; });
    if (theirs == of_b.end() || theirs->list != mine.list) {
      if (!of_b.empty()) result.fail("not the same results", mine.name);
      continue;
    }
    if (mine.list) {
      Samples(mine.name, options.tolerance_of_values(), result).compare(mine, *theirs);
    } else {
      compare(mine.tensors.front(), theirs->tensors.front(), mine.name, 0, options.tolerance_of_values(),
              result);
    }
  }
  if (of_b.size() > of_a.size() && !of_a.empty()) result.fail("not the same results", "B has more");
  return result;
}

struct Row {
  const Layer* layer;  // of A, or of B if A lacks the module
  const Layer* other;  // of B, or null
  Comparison comparison;
};

std::vector<Row> compare_all(const std::vector<Pair>& pairs, const DiffOptions& options) {
  std::vector<Row> rows;
  Progress progress("comparing", static_cast<std::int64_t>(pairs.size()));
  for (const Pair& pair : pairs) {
    const auto& [mine, theirs] = pair;
    Comparison comparison;
    if (!pair.ran()) {
      comparison.status = kNotRun;
    } else if (mine == nullptr || theirs == nullptr) {
      comparison.fail(theirs == nullptr ? "missing in B" : "missing in A", "");
    } else {
      comparison = compare(*mine, *theirs, options);
    }
    rows.push_back(
        {mine != nullptr ? mine : theirs, mine != nullptr ? theirs : nullptr, std::move(comparison)});
    progress.advance();
  }
  return rows;
}

/// The row whose difference appears first; null if there is none.
const Row* first_difference(const Layers& a, const Layers& b, const std::vector<Row>& rows) {
  // By the return order of the module's sample among all modules; without it, by the forward, then by the
  // call.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> returned;
  const bool by_a = !a.calls.empty();
  std::map<std::int64_t, std::int64_t> seen;
  for (const auto index : by_a ? a.calls : b.calls) {
    const auto when = static_cast<std::int64_t>(returned.size());
    returned.emplace(std::make_pair(index, seen[index]++), when);
  }
  std::int64_t forwards = 0;
  for (const auto& row : rows) {
    const std::int64_t samples = row.comparison.samples;
    if (samples > 0 && (forwards == 0 || samples < forwards)) forwards = samples;
  }
  const auto rank = [&](const Row& row) -> std::pair<std::int64_t, std::int64_t> {
    const std::int64_t sample = row.comparison.at;
    const Layer* known = by_a ? row.layer : row.other;
    if (row.comparison.status == "missing in A") return {INT64_MAX, 0};
    if (known != nullptr) {
      const auto when = returned.find({known->index, sample});
      if (when != returned.end()) return {when->second, 0};
    }
    const bool even = forwards > 0 && row.comparison.samples % forwards == 0 && row.comparison.samples > 0;
    const std::int64_t calls = even ? row.comparison.samples / forwards : 1;
    return {sample / calls, sample % calls};
  };
  const Row* first = nullptr;
  for (const auto& row : rows) {
    if (!row.comparison.agrees() && (first == nullptr || rank(row) < rank(*first))) first = &row;
  }
  return first;
}

Json rows_to_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const auto& [layer, other, comparison] : rows) {
    Json entry{{"path", layer->path}, {"type", layer->entry.type()}};
    comparison.describe(entry);
    list.push_back(std::move(entry));
  }
  return list;
}

void print_json(const std::vector<Row>& rows, const Row* first, const DiffOptions& options) {
  print(Json{{"a", options.a},
             {"b", options.b},
             {"rtol", options.rtol},
             {"atol", options.atol},
             {"agree", first == nullptr},
             {"first", first == nullptr ? Json(nullptr) : Json(first->layer->path)},
             {"entries", rows_to_json(rows)}});
}

void print_table(const std::vector<Row>& rows, const Row* first, const DiffOptions& options) {
  using Align = Table::Align;
  Table table({{"path", Align::left, Table::kAlways, 20, true},
               {"type", Align::left, 40, 8},
               {"max abs", Align::right, 90},
               {"max rel", Align::right, 85},
               {"cosine", Align::right, 80},
               {"status"}});
  table.folds_constant_columns();
  for (const auto& [layer, other, comparison] : rows) {
    if (comparison.status == kNotRun) continue;
    const auto text = [&, compared = comparison.compared](double value) {
      return compared ? to_text(value) : std::string("-");
    };
    table.add({shown_path(layer->path), layer->entry.type().empty() ? "-" : layer->entry.type(),
               text(comparison.max_abs), text(comparison.max_rel), text(comparison.cosine()),
               comparison.status});
  }
  table.print(std::cout);
  std::cout << '\n';
  const auto idle = std::count_if(rows.begin(), rows.end(),
                                  [](const Row& row) { return row.comparison.status == kNotRun; });
  const auto ran = static_cast<std::int64_t>(rows.size()) - idle;
  const std::string rest = idle == 0 ? "." : c10::str("; ", counted(idle, "module"), " ran on neither side.");
  if (first == nullptr) {
    return print_wrapped(
        std::cout,
        c10::str(ran == 1 ? "The module agrees" : c10::str("All ", ran, " modules agree"), " within rtol ",
                 to_text(options.rtol), " and atol ", to_text(options.atol), rest));
  }
  const auto& detail = first->comparison.detail;
  const auto count =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return !row.comparison.agrees(); });
  print_wrapped(std::cout,
                c10::str(ran == 1 ? "The module does not agree: it is "
                                  : c10::str(count, " of ", ran, " modules do not agree; the first is "),
                         shown_path(first->layer->path), ": ", first->comparison.status,
                         detail.empty() ? "" : " (" + detail + ")", rest));
}

std::vector<Pair> pairs_of(const Layers& a, const Layers& b, const DiffOptions& options) {
  const auto is_file = [](const std::string& path) { return std::filesystem::is_regular_file(path); };
  return pair_up(a, b, is_file(options.a) && is_file(options.b));
}

/// Compares number by number. Returns whether all agree.
bool diff_values(const Layers& a, const Layers& b, const DiffOptions& options) {
  const auto rows = compare_all(pairs_of(a, b, options), options);
  const Row* first = first_difference(a, b, rows);
  switch (options.format()) {
    case Format::table:
      print_table(rows, first, options);
      break;
    case Format::json:
      print_json(rows, first, options);
      break;
    case Format::csv:
      print_csv(rows_to_json(rows));
      break;
  }
  return first == nullptr;
}

/// Compares distributions. Returns whether all agree.
bool diff_statistics(const Layers& a, const Layers& b, const DiffOptions& options) {
  const auto all = drifts(pairs_of(a, b, options), options.tolerance);
  print_drifts(all, {options.a, options.b, options.tolerance, options.format()});
  return std::all_of(all.begin(), all.end(), [](const Drift& drift) { return drift.agrees(); });
}

}  // namespace

void add_diff(CLI::App& app) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* command = app.add_subcommand("diff", "Compare two recordings, module by module, or two traces");
  command->footer(kDiffExamples);
  command->add_option("a", options->a, "A recording, a .pt file, or a folder from Python")
      ->required()
      ->check(CLI::ExistingPath);
  command->add_option("b", options->b, "The recording to compare it with")
      ->required()
      ->check(CLI::ExistingPath);
  auto* rtol = command->add_option("--rtol", options->rtol, "Relative tolerance, number by number")
                   ->check(tolerance())
                   ->capture_default_str();
  auto* atol = command->add_option("--atol", options->atol, "Absolute tolerance, number by number")
                   ->check(tolerance())
                   ->capture_default_str();
  auto* distance = command
                       ->add_option("--tolerance", options->tolerance,
                                    "For statistics: the largest distance at which modules agree")
                       ->check(tolerance())
                       ->capture_default_str()
                       ->excludes(rtol)
                       ->excludes(atol);
  auto* json = command->add_flag("--json", options->json, "Write JSON");
  command->add_flag("--csv", options->csv, "Write comma-separated values")->excludes(json);
  command->callback([options, rtol, atol, distance] {
    const Layers a = open_layers(options->a);
    const Layers b = open_layers(options->b);
    if (is_trace(a) || is_trace(b)) {
      TORCH_CHECK_VALUE(is_trace(a) && is_trace(b), "only one of \"", options->a, "\" and \"", options->b,
                        "\" is a trace; compare it with another trace (torchtap trace --save).");
      TORCH_CHECK_VALUE(distance->count() == 0,
                        "--tolerance is for recordings of statistics; use --rtol and --atol.");
      const TraceDiff how{options->a, options->b, options->tolerance_of_values(), options->format()};
      if (!diff_traces(how)) throw CLI::RuntimeError(1);
      return;
    }
    const bool statistics = has_statistics(a) && has_statistics(b);
    TORCH_CHECK_VALUE(statistics || distance->count() == 0,
                      "--tolerance is for recordings of statistics, but one of these has "
                      "samples; use --rtol and --atol.");
    const bool agree = statistics && rtol->count() + atol->count() == 0 ? diff_statistics(a, b, *options)
                                                                        : diff_values(a, b, *options);
    if (!agree) throw CLI::RuntimeError(1);
  });
}

}  // namespace torchtap::tools
