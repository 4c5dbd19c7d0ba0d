#include <ATen/Functions.h>
#include <ATen/core/Formatting.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include <torchtap/base/magnitude.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/histogram.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/moments.hpp>

#include "commands.hpp"
#include "files/csv.hpp"
#include "files/dtypes.hpp"
#include "files/json.hpp"
#include "options/option_checks.hpp"
#include "recordings/dump.hpp"
#include "recordings/large_results.hpp"
#include "recordings/manifest.hpp"
#include "recordings/recordings.hpp"
#include "recordings/statistics.hpp"
#include "recordings/statistics_table.hpp"
#include "terminal/drawing.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr char kShowExamples[] = R"(
Shows a recording, a .pt, .npy or .safetensors file, or a folder of such files (see torchtap compare --help).

A recording of statistics gets one row per module and one column per result. Variances are shown as standard
deviations, results with several numbers as a range (min … max), and histograms as a line of blocks from the lowest
bin to the highest. The column "mark" names the rules that torchtap check would find with its own thresholds; lines below
the table say what each means.
Reductions by key have one row for each key, such as "fc labels=3".
--sort COLUMN puts the largest first, --sort -COLUMN the smallest; several numbers are sorted by the largest of them.
A recording of samples gets one row per module with the number, dtype and shape of its samples. In a dump (record --rows)
samples are rows, and a line below says what is beside them.

A table fits the terminal, or $COLUMNS columns: values that are the same in all rows move below it, long paths are cut
at their front, and a line below names the columns left out. --json and --csv have all columns, with all digits.

--stats is for samples: it prints one line per result; NaN and infinities are counted and left out of the other
columns. Of complex numbers --stats and --histogram show the magnitudes.
--histogram draws the counts of a histogram reduction (added up if there are several; those of log_histogram by octave),
or else 40 bins of the values.
--json writes one document to stdout, with NaN and infinities as the strings "NaN", "Infinity" and "-Infinity".

Examples:
  torchtap show stats/                                 # from: record … --reduce moments,histogram:64:-4:4,count
  torchtap show stats/ --sort std                      # the largest first; --sort -std the smallest
  torchtap show stats/ --csv > stats.csv
  torchtap show stats/ --json | jq '.entries[] | select(.marks != []) | .path'
  torchtap show stats/ --entry layer1.0.conv1          # everything about one module
  torchtap show raw/ --stats
  torchtap show raw/ --entry '#3' --sample 0 --json
  torchtap show raw/ --entry fc --histogram
  torchtap show dump/ --module layer2 --rows 0:5 --beside

Exit status: 0, or 2 if something cannot be read or found.)";

constexpr std::int64_t kBins = 40;

struct ShowOptions {
  std::string path;
  std::string entry;
  std::string result;
  std::optional<std::int64_t> sample;
  std::string rows;
  bool beside = false;
  std::string sort;
  bool stats = false;
  bool histogram = false;
  bool json = false;
  bool csv = false;

  Format format() const { return json ? Format::json : csv ? Format::csv : Format::table; }
};

/// Calls `visit` with all values of a result, block by block. Complex numbers are given as magnitudes,
/// because these have an order.
void each_values(const Result& result, const std::function<void(const at::Tensor&)>& visit) {
  each_block(result, [&](const at::Tensor& block) {
    if (block.is_complex()) return visit(base::magnitude(block));
    visit(block.scalar_type() == at::kBool ? block.to(at::kByte) : block);
  });
}

/// The name of a result, and that its numbers are magnitudes if they are.
std::string named(const Result& result) {
  bool complex = false;
  const at::Tensor* tensor = nullptr;
  for (TensorReader reader(result); !complex && (tensor = reader.next()) != nullptr;) {
    complex = tensor->defined() && tensor->is_complex();
    if (tensor->defined()) break;
  }
  return complex ? result.name + (result.name.empty() ? "" : " ") + "(magnitude)" : result.name;
}

/// Statistics of all finite elements of a result.
struct Stats {
  std::int64_t elements = 0;
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  double mean = NAN;
  double std = NAN;
  double min = NAN;
  double max = NAN;
  Json least = NAN, most = NAN;  ///< the same with all digits, also of whole numbers

  /// A single number has no deviation.
  bool has_std() const { return elements - nan - inf > 1; }
};

Stats stats_of(const Result& result) {
  using namespace reductions;
  const auto number = [](const at::Tensor& tensor) { return tensor.to(at::kDouble).item<double>(); };
  Moments moments(MomentsOptions().over_all(true).non_finite(NonFinite::omit));
  Min min(MinOptions().over_all(true).non_finite(NonFinite::omit));
  Max max(MaxOptions().over_all(true).non_finite(NonFinite::omit));
  Stats stats;
  each_values(result, [&](const at::Tensor& values) {
    moments.update(values);
    min.update(values);
    max.update(values);
    stats.elements += values.numel();
    if (values.is_floating_point()) {
      stats.nan += values.isnan().sum().item<std::int64_t>();
      stats.inf += values.isinf().sum().item<std::int64_t>();
    }
  });
  if (stats.elements == stats.nan + stats.inf) return stats;
  stats.mean = number(moments.mean());
  stats.std = std::sqrt(number(moments.variance()));
  const auto exact = [&](const at::Tensor& tensor) {
    return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) ? Json(tensor.item<std::int64_t>())
                                                                          : Json(number(tensor));
  };
  stats.min = number(min.value());
  stats.max = number(max.value());
  stats.least = exact(min.value());
  stats.most = exact(max.value());
  return stats;
}

/// A histogram to draw.
struct Drawing {
  std::vector<double> counts;
  std::vector<double> edges;
};

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

Drawing drawing_of(const Result& result, const Stats& stats) {
  const bool constant = !(stats.max > stats.min);
  const double low = constant ? stats.min - 0.5 : stats.min;
  const double high = constant ? stats.max + 0.5 : stats.max;
  reductions::Histogram histogram(reductions::HistogramOptions(kBins, low, high).over_all(true));
  each_values(result, [&](const at::Tensor& values) { histogram.update(values); });
  return {to_doubles(histogram.counts()), to_doubles(histogram.edges())};
}

/// The requested samples.
Result chosen(Result result, const ShowOptions& options, const std::string& path) {
  if (!options.sample.has_value()) return result;
  const auto size = static_cast<std::int64_t>(result.tensors.size());
  TORCH_CHECK_INDEX(result.list, shown_path(path),
                    " has no samples because they were reduced; omit --sample.");
  TORCH_CHECK_INDEX(*options.sample >= 0 && *options.sample < size, shown_path(path), " has ", size,
                    " samples, so there is no sample ", *options.sample, ".");
  return {result.name, false, {result.tensors[static_cast<std::size_t>(*options.sample)]}};
}

/// The requested results of the requested entries.
struct Selected {
  const Layer* layer;
  std::vector<Result> all;
  std::vector<Result> results;
};

template <class Visit>
void each_selected(const Layers& layers, const ShowOptions& options, const Visit& visit) {
  for (const Layer* chosen_layer : layers.chosen(options.entry)) {
    const Layer& layer = *chosen_layer;
    const bool whole = options.sample.has_value();
    Selected selected{&layer, whole ? results_of(layer.entry.value()) : results_on_disk(layer.entry), {}};
    if (options.result.empty()) {
      for (const auto& result : selected.all) {
        selected.results.push_back(chosen(result, options, layer.path));
      }
    } else if (!options.histogram || !bins_of(selected.all, options.result).has_value()) {
      selected.results.push_back(
          chosen(find_result(selected.all, options.result, layer.path), options, layer.path));
    }
    visit(selected);
  }
}

std::string title(const Layer& layer, const std::string& result) {
  return shown_path(layer.path) + (result.empty() ? "" : " " + printable(result));
}

void show_stats(const Layers& layers, const ShowOptions& options) {
  using Align = Table::Align;
  Json list = Json::array();
  Table table({{"index", Align::right, 20},
               {"path", Align::left, Table::kAlways, 20, true},
               {"result", Align::left, 95, 12},
               {"elements", Align::right, 40},
               {"mean", Align::right, 88},
               {"std", Align::right, 90},
               {"min", Align::right, 82},
               {"max", Align::right, 84},
               {"nan", Align::right, 74},
               {"inf", Align::right, 73}});
  table.folds_constant_columns();
  each_selected(layers, options, [&](const Selected& selected) {
    for (const auto& result : selected.results) {
      const Stats stats = stats_of(result);
      const std::string name = named(result);
      table.add({std::to_string(selected.layer->index), shown_path(selected.layer->path),
                 name.empty() ? "-" : name, std::to_string(stats.elements), to_text(stats.mean),
                 stats.has_std() ? to_text(stats.std) : "-", to_text(stats.min), to_text(stats.max),
                 std::to_string(stats.nan), std::to_string(stats.inf)});
      list.push_back({{"index", selected.layer->index},
                      {"path", selected.layer->path},
                      {"result", name},
                      {"elements", stats.elements},
                      {"mean", stats.mean},
                      {"std", stats.has_std() ? Json(stats.std) : Json(nullptr)},
                      {"min", stats.least},
                      {"max", stats.most},
                      {"nan", stats.nan},
                      {"inf", stats.inf}});
    }
  });
  switch (options.format()) {
    case Format::table:
      table.print(std::cout);
      return;
    case Format::json:
      return print(Json{{"path", options.path}, {"stats", std::move(list)}});
    case Format::csv:
      return print_csv(list);
  }
}

void show_histogram(const Layers& layers, const ShowOptions& options) {
  Json list = Json::array();
  const auto show = [&](const Layer& layer, const std::string& result, const Drawing& drawing) {
    if (options.json) {
      list.push_back(
          {{"path", layer.path}, {"result", result}, {"counts", drawing.counts}, {"edges", drawing.edges}});
    } else {
      std::cout << title(layer, result) << '\n';
      print_histogram(std::cout, drawing.counts, drawing.edges);
    }
  };
  each_selected(layers, options, [&](const Selected& selected) {
    if (const auto bins = bins_of(selected.all, options.result)) {
      const Bins shown = options.json ? *bins : bins->drawn();
      show(*selected.layer, options.result, {shown.total(), shown.edge_list()});
      return;
    }
    for (const auto& result : selected.results) {
      const Stats stats = stats_of(result);
      if (stats.elements > stats.nan + stats.inf)
        show(*selected.layer, named(result), drawing_of(result, stats));
    }
  });
  if (options.json) print(Json{{"path", options.path}, {"histograms", std::move(list)}});
}

/// LibTorch's printing leaves out imaginary parts.
void print_values(std::ostream& stream, const at::Tensor& tensor) {
  if (!tensor.is_complex()) {
    stream << tensor << '\n';
    return;
  }
  const at::Tensor plain = tensor.resolve_conj().to(at::kComplexDouble).contiguous();
  const auto* data = static_cast<const c10::complex<double>*>(plain.data_ptr());
  const std::int64_t columns = plain.dim() == 0 ? 1 : plain.size(-1);
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    const std::string imaginary = to_text(data[i].imag());
    stream << ' ' << to_text(data[i].real()) << (imaginary[0] == '-' ? "" : "+") << imaginary << 'j'
           << ((i + 1) % columns == 0 ? "\n" : "");
  }
  stream << "[ " << dtype_text(tensor.scalar_type()) << ' ' << shape_to_text(tensor.sizes().vec()) << " ]\n";
}

void show_values(const Layers& layers, const ShowOptions& options) {
  const Layer& layer = layers.at(options.entry);
  const auto results = results_of(layer.entry.value());
  const Result result = chosen(find_result(results, options.result, layer.path), options, layer.path);
  TORCH_CHECK_VALUE(!options.csv,
                    "--csv has one row per module; torchtap convert --to csv writes the values of ",
                    shown_path(layer.path), ".");
  if (options.json) {
    Json values = Json::array();
    for (const auto& tensor : result.tensors) values.push_back(to_json(tensor));
    print(Json{{"path", layer.path},
               {"result", result.name},
               {"dtype", layer.entry.dtype()},
               {"values", result.list ? std::move(values) : std::move(values.front())}});
    return;
  }
  for (std::size_t i = 0; i < result.tensors.size(); ++i) {
    const at::Tensor& tensor = result.tensors[i];
    std::cout << title(layer, result.name);
    if (result.list) std::cout << " sample " << i;
    if (tensor.defined()) {
      std::cout << ' ' << dtype_text(tensor.scalar_type()) << ' ' << shape_to_text(tensor.sizes().vec())
                << '\n';
      print_values(std::cout, tensor);
    } else {
      std::cout << " none\n";
    }
  }
}

/// Whether all results of a module are requested, and there are several.
bool wants_results(const Layers& layers, const ShowOptions& options) {
  if (options.entry.empty() || !options.result.empty() || options.sample.has_value()) return false;
  const auto& entry = layers.at(options.entry).entry;
  return has_statistics(entry) && results_of(entry.value()).size() > 1;
}

/// Whether `--result` names a column of the table, such as "std", rather than a result in the file.
bool wants_column(const Layers& layers, const ShowOptions& options) {
  if (options.entry.empty() || options.result.empty() || options.sample.has_value()) return false;
  const auto& entry = layers.at(options.entry).entry;
  if (!has_statistics(entry)) return false;
  const auto results = results_of(entry.value());
  const auto is_it = [&](const Result& result) { return result.name == options.result; };
  if (std::any_of(results.begin(), results.end(), is_it)) return false;
  const auto slots = statistics_of(entry);
  return std::any_of(slots.begin(), slots.end(), [&](const Statistics& slot) {
    return slot.find(options.result) != nullptr || slot.find_base(options.result) != nullptr;
  });
}

void show(const Layers& layers, const ShowOptions& options) {
  const bool statistics = has_statistics(layers);
  TORCH_CHECK_VALUE(options.sort.empty() || statistics, "--sort sorts the results of reductions, but \"",
                    options.path, "\" is a recording of samples; omit --sort.");
  if (!options.rows.empty())
    return print_rows(layers.at(options.entry), options.rows, options.beside, options.json);
  if (options.stats) return show_stats(layers, options);
  if (options.histogram) return show_histogram(layers, options);
  const bool results = wants_results(layers, options) || wants_column(layers, options);
  if (wants_results(layers, options) && options.format() == Format::table)
    return print_results(layers.at(options.entry));
  if (!options.entry.empty() && !results) return show_values(layers, options);
  if (!statistics) return print_manifest(layers, options.path, options.entry, options.format());
  print_summary(layers, {options.path, options.entry, options.result, options.sort, options.format()});
}

}  // namespace

void add_show(CLI::App& app) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("show", "Show a recording: a table, statistics, values");
  command->footer(kShowExamples);
  command->add_option("recording", options->path, "A recording, a .pt file, or a folder from Python")
      ->required()
      ->check(CLI::ExistingPath);
  auto* entry =
      command->add_option("--entry,--module", options->entry,
                          "One module, by path or, if no path matches, by index; '#3' is always an index");
  command->add_option("--result", options->result,
                      "One result of a reduction, or a column of the table: variance, std");
  command->add_option("--sample", options->sample, "One of the kept samples, from 0")
      ->transform(whole_number(0))
      ->needs(entry);
  auto* stats = command->add_flag("--stats", options->stats, "Mean, std, min, max, NaN and infinities");
  auto* histogram =
      command->add_flag("--histogram", options->histogram, "A histogram of the values")->excludes(stats);
  command
      ->add_option("--sort", options->sort,
                   "Sort by a column of statistics, largest first; -COLUMN: smallest first")
      ->type_name("COLUMN")
      ->excludes(stats)
      ->excludes(histogram);
  auto* rows = command
                   ->add_option("--rows", options->rows,
                                "Rows of a module: BEGIN:END as in Python, or one number; of a dump, or of "
                                "samples by their first dimension")
                   ->type_name("BEGIN:END")
                   ->needs(entry)
                   ->excludes(stats)
                   ->excludes(histogram)
                   ->excludes("--sample")
                   ->excludes("--result");
  command->add_flag("--beside", options->beside, "With what is beside each row, and where it is from")
      ->needs(rows);
  auto* json = command->add_flag("--json", options->json, "Write JSON");
  command->add_flag("--csv", options->csv, "Write comma-separated values")
      ->excludes(json)
      ->excludes(rows)
      ->excludes(histogram);
  command->callback([options] { show(open_layers(options->path), *options); });
}

}  // namespace torchtap::tools
