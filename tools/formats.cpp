#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/reductions/formats.hpp>
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
with their share. --json and --csv have all numbers: the shares that underflow, become subnormal and overflow, the ratio
(sqnr), and for formats without blocks the scale that was used.

  e4m3, e5m2         float8 of OCP (float8_e4m3fn, float8_e5m2)
  bf16, f16          bfloat16, float16
  int8               -127 to 127
  mxfp8, mxfp8_e5m2, mxfp4, nvfp4   blocks of 32 or 16 neighbours, each with a scale

A recording of samples is counted exactly, and so is one of the reduction formats. Of log_histogram and blocks formats
without blocks are estimated, with values spread evenly over each bin; "bound" is the largest error of a share.

Formats without blocks have the scale 1 unless --scale says otherwise: amax, with which the largest value of each module
just fits, or mse, with the least squared error (from a histogram, in steps of a quarter of an octave).

Examples:
  torchtap formats stats/                       # from: record … --reduce log_histogram, or formats
  torchtap formats stats/ --to e4m3,int8 --scale amax
  torchtap formats raw/ --to mxfp8,nvfp4        # from samples
  torchtap formats weights.pt --csv > formats.csv

Exit status: 0, or 2 if something cannot be read.)";

struct FormatsAsked {
  std::string path;
  std::vector<std::string> to;
  std::string scale = "1";
  bool json = false, csv = false;
};

/// What one format does to one tensor.
struct Cost {
  double underflow, subnormal, overflow, sqnr;
  std::optional<double> scale, bound;

  double lost() const { return underflow + overflow; }
};

/// A tensor of a recording, and the costs of formats by name.
struct Row {
  const Layer* layer;
  std::string
      name;  ///< of the result before "low" or "e4m3.underflow": "[1].log_histogram"; "" if there is none
  std::map<std::string, Cost> costs;
};

/// Of several kept elements, the mean of those that have finite values.
double number(const core::Results& results, const std::string& name) {
  return at::nanmean(results.at(name).to(at::kDouble)).item<double>();
}

/// The results of `Formats` for a format.
Cost cost_of(const core::Results& results, const std::string& format) {
  const double signal = number(results, "mean_square"), noise = number(results, format + ".mse");
  return {number(results, format + ".underflow"),
          number(results, format + ".subnormal"),
          number(results, format + ".overflow"),
          10 * std::log10(signal / noise),
          std::nullopt,
          std::nullopt};
}

bool has_blocks(const std::string& format) {
  return format.compare(0, 2, "mx") == 0 || format == "nvfp4";
}

/// The scale for a format without blocks.
double scale_for(const std::string& format, const core::Results& histogram, const FormatsAsked& asked) {
  const auto scale = asked.scale == "mse"    ? reductions::best_scale(format, histogram)
                     : asked.scale == "amax" ? reductions::largest_scale(format, histogram)
                                             : 1.0;
  return std::clamp(scale, 0x1p-60, 0x1p60);
}

/// Counts samples, or all values of a tensor.
void count(const Result& result, const FormatsAsked& asked, Row& row) {
  using namespace reductions;
  FormatsOptions options = asked.to.empty() ? FormatsOptions() : FormatsOptions(asked.to);
  std::map<std::string, double> scales;
  const auto each = [&](const auto& visit) {
    const at::Tensor* tensor = nullptr;
    for (TensorReader reader(result); (tensor = reader.next()) != nullptr;) {
      if (tensor->defined() && tensor->numel() != 0)
        visit(tensor->is_complex() ? at::view_as_real(tensor->resolve_conj()).contiguous() : *tensor);
    }
  };
  if (asked.scale != "1") {
    LogHistogram histogram(LogHistogramOptions(7).over_all(true));
    each([&](const at::Tensor& tensor) { histogram.update(tensor); });
    if (histogram.count() == 0) return;
    for (const auto& format : options.formats()) {
      if (has_blocks(format)) continue;
      scales[format] = scale_for(format, histogram.results(), asked);
      options.scale(format, scales[format]);
    }
  }
  Formats formats(options.over_all(true));
  each([&](const at::Tensor& tensor) { formats.update(tensor); });
  if (formats.count() == 0) return;
  const core::Results results = formats.results();
  for (const auto& format : formats.formats()) {
    Cost& cost = row.costs[format] = cost_of(results, format);
    if (!has_blocks(format)) cost.scale = scales.empty() ? 1 : scales.at(format);
  }
}

/// The results of statistics that begin with `prefix`, without it.
core::Results behind(const std::vector<Result>& all, const std::string& prefix) {
  core::Results results;
  for (const auto& result : all) {
    if (!result.list && result.name.compare(0, prefix.size(), prefix) == 0)
      results.set(result.name.substr(prefix.size()), result.tensors.front());
  }
  return results;
}

/// The rows of a module with statistics.
void read_statistics(const Layer& layer, const FormatsAsked& asked, std::vector<Row>& rows) {
  const auto all = results_of(layer.entry.value());
  for (const auto& result : all) {
    const bool counted = base_of(result.name) == "mean_square";
    if (!counted && base_of(result.name) != "low") continue;
    const std::string prefix = result.name.substr(0, result.name.size() - (counted ? 11 : 3));
    const core::Results found = behind(all, prefix);
    Row row{&layer, prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1), {}};
    for (const auto& name : reductions::formats()) {
      if (!asked.to.empty() && std::count(asked.to.begin(), asked.to.end(), name) == 0) continue;
      if (counted) {
        if (found.contains(name + ".underflow")) row.costs[name] = cost_of(found, name);
      } else if (!has_blocks(name)) {
        const double scale = scale_for(name, found, asked);
        const auto cost = reductions::format_cost(name, found, scale);
        row.costs[name] = {cost.underflow, cost.subnormal, cost.overflow, cost.sqnr, scale, cost.bound};
      }
    }
    TORCH_CHECK_VALUE(
        !counted || asked.scale == "1", "\"", asked.path,
        "\" was recorded with the reduction formats, which has fixed its scales; omit --scale.");
    rows.push_back(std::move(row));
  }
}

std::vector<Row> rows_of(const Layers& layers, const FormatsAsked& asked) {
  std::vector<Row> rows;
  for (const Layer& layer : layers.all) {
    if (has_statistics(layer.entry)) {
      read_statistics(layer, asked, rows);
      continue;
    }
    for (const auto& result : results_on_disk(layer.entry)) {
      Row row{&layer, result.name, {}};
      count(result, asked, row);
      if (!row.costs.empty()) rows.push_back(std::move(row));
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
      cells.push_back(found == row.costs.end() ? "-" : to_text(found->second.sqnr, 3));
      if (found == row.costs.end()) continue;
      bound = std::max(bound, found->second.bound.value_or(0));
      const double share = found->second.lost();
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
  (void)reductions::Formats(asked.to.empty() ? reductions::FormatsOptions()
                                             : reductions::FormatsOptions(asked.to));
  Layers layers = open_layers(asked.path);
  if (layers.is_file() && !has_statistics(layers)) layers = by_name(std::move(layers));
  const auto rows = rows_of(layers, asked);
  std::vector<std::string> names;
  for (const auto& name : reductions::formats()) {
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
      const Cost& cost = found->second;
      list.push_back({{"path", row.layer->path},
                      {"result", row.name},
                      {"format", name},
                      {"underflow", cost.underflow},
                      {"subnormal", cost.subnormal},
                      {"overflow", cost.overflow},
                      {"sqnr", cost.sqnr},
                      {"scale", or_null(cost.scale)},
                      {"bound", or_null(cost.bound)}});
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
