#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/quantization/formats.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/rules/rules.hpp>

#include "commands.hpp"
#include "files/csv.hpp"
#include "files/json.hpp"
#include "recordings/large_results.hpp"
#include "recordings/recordings.hpp"
#include "recordings/statistics.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr char kFormatsExamples[] = R"(
Says what rounding the values of each module to formats of low precision would lose: the signal to noise ratio in dB,
and, as "lost", the formats in which more values than the rule format_range allows (1 %) would become zero or overflow,
with their share. --json and --csv have all numbers.

  e4m3, e5m2, bf16, f16, int8         float8 of OCP, bfloat16, float16, -127 to 127
  mxfp8, mxfp8_e5m2, mxfp4, nvfp4     blocks of 32 or 16 neighbours, each with a scale

A recording of samples is counted exactly, and so is one of the reduction formats. Of log_histogram and blocks formats
without blocks are estimated; "bound" is the largest error of a share. --scale amax divides values by the scale with
which the largest value of each module just fits, --scale mse by that with the least squared error in steps of a quarter
of an octave; then samples are estimated, too, from a histogram of fine bins.

Examples:
  torchtap formats stats/                       # from: record … --reduce log_histogram, or formats
  torchtap formats stats/ --to e4m3,int8 --scale amax
  torchtap formats weights.pt --to mxfp8,nvfp4 --csv > formats.csv

Exit status: 0, or 2 if something cannot be read.)";

struct FormatsAsked {
  std::string path;
  std::vector<std::string> to;
  std::string scale = "1";
  bool json = false, csv = false;
};

/// The cost of a format for a tensor, and the scale and the bound of its shares if they are known.
struct Cost {
  quantization::FormatCost of;
  std::optional<double> scale, bound;
};

/// A tensor of a recording, and the costs of formats by name.
struct Row {
  const Layer* layer;
  std::string name;  ///< of its results, without "low" or "e4m3.underflow": "[1].log_histogram"
  std::map<std::string, Cost> costs;
};

/// Adds the costs that the results of `Formats` or `LogHistogram` tell.
void add_costs(const core::Results& results, const FormatsAsked& asked, Row& row) {
  const bool counted = results.contains("mean_square");
  /// Of several kept elements, the mean of those that have finite values.
  const auto number = [&](const std::string& name) {
    return at::nanmean(results.at(name).to(at::kDouble)).item<double>();
  };
  for (const auto& format : quantization::format_names()) {
    const bool blocks = format.compare(0, 2, "mx") == 0 || format == "nvfp4";
    if (!asked.to.empty() && std::count(asked.to.begin(), asked.to.end(), format) == 0) continue;
    if (counted ? !results.contains(format + ".mse") : blocks) continue;
    Cost cost;
    if (counted) {
      const double ratio = number("mean_square") / number(format + ".mse");
      cost.of = {number(format + ".underflow"), number(format + ".subnormal"), number(format + ".overflow"),
                 0, 10 * std::log10(ratio)};
    } else {
      cost.scale = asked.scale == "mse"    ? quantization::best_scale(format, results)
                   : asked.scale == "amax" ? quantization::largest_scale(format, results)
                                           : 1.0;
      cost.of = quantization::format_cost(format, results, *cost.scale);
      cost.bound = cost.of.bound;
    }
    row.costs.emplace(format, cost);
  }
}

/// Counts samples, or all values of a tensor.
template <class Reduction>
void count(Reduction reduction, const Result& result, const FormatsAsked& asked, std::vector<Row>& rows,
           const Layer& layer) {
  const at::Tensor* tensor = nullptr;
  for (TensorReader reader(result); (tensor = reader.next()) != nullptr;) {
    if (tensor->defined() && tensor->numel() != 0)
      reduction.update(tensor->is_complex() ? at::view_as_real(tensor->resolve_conj()).contiguous()
                                            : *tensor);
  }
  if (reduction.count() == 0) return;
  rows.push_back({&layer, result.name, {}});
  add_costs(reduction.results(), asked, rows.back());
}

/// The rows of a module with statistics.
void read_statistics(const Layer& layer, const FormatsAsked& asked, std::vector<Row>& rows) {
  const auto all = results_of(layer.entry.value());
  for (const auto& result : all) {
    const std::string base = base_of(result.name);
    if (base != "mean_square" && base != "low") continue;
    TORCH_CHECK_VALUE(
        base == "low" || asked.scale == "1", "\"", asked.path,
        "\" was recorded with the reduction formats, which has fixed its scales; omit --scale.");
    const std::string prefix = result.name.substr(0, result.name.size() - base.size());
    core::Results found;
    for (const auto& one : all) {
      if (!one.list && one.name.compare(0, prefix.size(), prefix) == 0)
        found.set(one.name.substr(prefix.size()), one.tensors.front());
    }
    rows.push_back({&layer, prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), {}});
    add_costs(found, asked, rows.back());
  }
}

std::vector<Row> rows_of(const Layers& layers, const quantization::Formats& formats,
                         const FormatsAsked& asked) {
  const reductions::LogHistogram histogram(reductions::LogHistogramOptions(7).over_all(true));
  std::vector<Row> rows;
  for (const Layer& layer : layers.all) {
    if (has_statistics(layer.entry)) {
      read_statistics(layer, asked, rows);
      continue;
    }
    for (const auto& result : results_on_disk(layer.entry)) {
      if (asked.scale == "1") {
        count(formats, result, asked, rows, layer);
      } else {
        count(histogram, result, asked, rows, layer);
      }
    }
  }
  TORCH_CHECK_VALUE(!rows.empty(), "\"", asked.path,
                    "\" has neither samples nor histograms; record with --reduce formats or log_histogram.");
  return rows;
}

void print_table(const std::vector<Row>& rows, const std::vector<std::string>& formats) {
  using Align = Table::Align;
  std::vector<Table::Column> columns{{"module", Align::left, Table::kAlways, 20, true}};
  const bool named = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.name.empty(); });
  if (named) columns.push_back({"result", Align::left, 60, 12});
  for (const auto& format : formats) columns.push_back({format, Align::right, 90});
  columns.push_back({"lost", Align::left, 80, 20});
  Table table(std::move(columns));
  table.folds_constant_columns();
  double bound = 0;
  for (const Row& row : rows) {
    std::vector<std::string> cells{shown_path(row.layer->path)};
    if (named) cells.push_back(row.name.empty() ? "-" : row.name);
    std::string lost;
    const double most = rules::Rules().value("format_range", "share", row.layer->path);
    for (const auto& format : formats) {
      const auto found = row.costs.find(format);
      cells.push_back(found == row.costs.end() ? "-" : to_text(found->second.of.sqnr, 3));
      if (found == row.costs.end()) continue;
      bound = std::max(bound, found->second.bound.value_or(0));
      const double share = found->second.of.underflow + found->second.of.overflow;
      if (share > most) lost += (lost.empty() ? "" : ", ") + format + " " + to_text(100 * share, 3) + " %";
    }
    cells.push_back(lost.empty() ? "-" : lost);
    table.add(std::move(cells));
  }
  table.print(std::cout);
  print_wrapped(std::cout, "signal to noise ratios in dB; lost: values that become zero or overflow");
  if (bound > 0)
    print_wrapped(std::cout,
                  "estimated from histograms; shares are off by at most " + to_text(100 * bound, 3) + " %");
}

void formats(const FormatsAsked& asked) {
  const auto options =
      asked.to.empty() ? quantization::FormatsOptions() : quantization::FormatsOptions(asked.to);
  const quantization::Formats counting(quantization::FormatsOptions(options).over_all(true));
  Layers layers = open_layers(asked.path);
  if (layers.is_file() && !has_statistics(layers)) layers = by_name(std::move(layers));
  const auto rows = rows_of(layers, counting, asked);
  std::vector<std::string> names;
  for (const auto& name : quantization::format_names()) {
    if (std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.costs.count(name) != 0; }))
      names.push_back(name);
  }
  TORCH_CHECK_VALUE(
      !names.empty(), "\"", asked.path,
      "\" does not tell about these formats: histograms know no blocks. Record with --reduce formats:",
      asked.to.front(), ".");
  if (!asked.json && !asked.csv) return print_table(rows, names);
  Json list = Json::array();
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  for (const Row& row : rows) {
    for (const auto& name : names) {
      const auto found = row.costs.find(name);
      if (found == row.costs.end()) continue;
      const auto& [cost, scale, bound] = found->second;
      list.push_back({{"path", row.layer->path},
                      {"result", row.name},
                      {"format", name},
                      {"underflow", cost.underflow},
                      {"subnormal", cost.subnormal},
                      {"overflow", cost.overflow},
                      {"sqnr", cost.sqnr},
                      {"scale", or_null(scale)},
                      {"bound", or_null(bound)}});
    }
  }
  if (asked.csv) return print_csv(list);
  print(Json{{"path", asked.path}, {"formats", std::move(list)}});
}

}  // namespace

void add_formats(CLI::App& app) {
  auto options = std::make_shared<FormatsAsked>();
  CLI::App* command = app.add_subcommand("formats", "Say what formats of low precision would lose");
  command->footer(kFormatsExamples);
  command->add_option("recording", options->path, "A recording, a file of tensors, or a folder from Python")
      ->required()
      ->check(CLI::ExistingPath);
  command->add_option("--to", options->to, "Formats, separated by commas")
      ->delimiter(',')
      ->type_name("NAMES");
  command->add_option("--scale", options->scale, "1, amax or mse: what values are divided by")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"1", "amax", "mse"}));
  auto* json = command->add_flag("--json", options->json, "Write JSON");
  command->add_flag("--csv", options->csv, "Write comma-separated values")->excludes(json);
  command->callback([options] { formats(*options); });
}

}  // namespace torchtap::tools
