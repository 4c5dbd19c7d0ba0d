#include <ATen/Functions.h>
#include <ATen/core/Formatting.h>
#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/extrema.hpp>
#include <torchtap/reductions/histogram.hpp>
#include <torchtap/reductions/moments.hpp>

#include "checks.hpp"
#include "commands.hpp"
#include "dtypes.hpp"
#include "json.hpp"
#include "recordings.hpp"
#include "terminal.hpp"
#include "texts.hpp"

namespace torchtap::tools {
namespace {

constexpr char kExamples[] = R"(
Shows a recording, a single .pt file, or a folder that a Python program wrote (see torchtap diff --help). Without
further options, its manifest as a table.

--stats has one line for each result; NaN and infinities are counted and left out of the other columns.
--histogram draws what a Histogram reduction counted (added up, if there are several), or else 40 bins of the values.
--json writes one document to stdout; NaN and infinities are the strings "NaN", "Infinity" and "-Infinity" there.

Examples:
  torchtap show maps/
  torchtap show maps/ --stats
  torchtap show maps/ --entry layer1.0.conv1 --result variance
  torchtap show maps/ --entry '#3' --sample 0 --json
  torchtap show maps/ --entry fc --histogram

Exit status: 0, or 2 if something cannot be read or found.)";

constexpr std::int64_t kBins = 40;

struct Options {
  std::string path;
  std::string entry;
  std::string result;
  std::optional<std::int64_t> sample;
  bool stats = false;
  bool histogram = false;
  bool json = false;
};

bool countable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && !tensor.is_complex();
}

/// Over all elements of a result that are finite.
struct Stats {
  std::int64_t elements = 0;
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  double mean = NAN;
  double std = NAN;
  double min = NAN;
  double max = NAN;
};

Stats stats_of(const Result& result) {
  using namespace reductions;
  const auto number = [](const at::Tensor& tensor) { return tensor.to(at::kDouble).item<double>(); };
  Moments moments(MomentsOptions().over_all(true).non_finite(NonFinite::omit));
  Min min(MinOptions().over_all(true).non_finite(NonFinite::omit));
  Max max(MaxOptions().over_all(true).non_finite(NonFinite::omit));
  Stats stats;
  for (const auto& tensor : result.tensors) {
    if (!countable(tensor)) continue;
    const at::Tensor values = tensor.scalar_type() == at::kBool ? tensor.to(at::kByte) : tensor;
    moments.update(values);
    min.update(values);
    max.update(values);
    stats.elements += values.numel();
    if (values.is_floating_point()) {
      stats.nan += values.isnan().sum().item<std::int64_t>();
      stats.inf += values.isinf().sum().item<std::int64_t>();
    }
  }
  if (stats.elements == stats.nan + stats.inf) return stats;
  stats.mean = number(moments.mean());
  stats.std = std::sqrt(number(moments.variance()));
  stats.min = number(min.state().at("value"));
  stats.max = number(max.state().at("value"));
  return stats;
}

struct Bins {
  std::vector<double> counts;
  std::vector<double> edges;
};

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

/// What a Histogram has counted, if `results` are, or contain, one's.
std::optional<Bins> counted(const std::vector<Result>& results, const std::string& name) {
  for (const auto& result : results) {
    constexpr char kCounts[] = "counts";
    const auto prefix = result.name.size() - std::min(result.name.size(), sizeof kCounts - 1);
    const std::string member = result.name.substr(0, prefix);
    if (result.name.substr(prefix) != kCounts ||
        (!name.empty() && name != result.name && name + "." != member))
      continue;
    for (const auto& other : results) {
      if (other.name != member + "edges") continue;
      const at::Tensor counts = result.tensors.front();
      const at::Tensor edges = other.tensors.front();
      if (counts.dim() == 0 || edges.dim() != 1 || edges.size(0) != counts.size(-1) + 1) continue;
      return Bins{to_doubles(counts.reshape({-1, counts.size(-1)}).sum(0)), to_doubles(edges)};
    }
  }
  return std::nullopt;
}

Bins bins_of(const Result& result, const Stats& stats) {
  const bool constant = !(stats.max > stats.min);
  const double low = constant ? stats.min - 0.5 : stats.min;
  const double high = constant ? stats.max + 0.5 : stats.max;
  reductions::Histogram histogram(reductions::HistogramOptions(kBins, low, high).over_all(true));
  for (const auto& tensor : result.tensors) {
    if (countable(tensor))
      histogram.update(tensor.scalar_type() == at::kBool ? tensor.to(at::kByte) : tensor);
  }
  return {to_doubles(histogram.counts()), to_doubles(histogram.edges())};
}

/// The samples asked for.
Result chosen(Result result, const Options& options, const std::string& path) {
  if (!options.sample.has_value()) return result;
  const auto size = static_cast<std::int64_t>(result.tensors.size());
  TORCH_CHECK_INDEX(result.list, shown_path(path), " has no samples, they were reduced; leave --sample out.");
  TORCH_CHECK_INDEX(*options.sample >= 0 && *options.sample < size, shown_path(path), " has ", size,
                    " samples, so there is no sample ", *options.sample, ".");
  return {result.name, false, {result.tensors[static_cast<std::size_t>(*options.sample)]}};
}

/// The results asked for, of the entries asked for.
struct Selected {
  const Layer* layer;
  std::vector<Result> all;
  std::vector<Result> results;
};

template <class Visit>
void each_selected(const Layers& layers, const Options& options, const Visit& visit) {
  for (const auto& layer : layers.all) {
    if (!options.entry.empty() && layer.index != layers.at(options.entry).index) continue;
    Selected selected{&layer, results_of(layer.entry.value()), {}};
    if (options.result.empty()) {
      for (const auto& result : selected.all) {
        selected.results.push_back(chosen(result, options, layer.path));
      }
    } else if (!options.histogram || !counted(selected.all, options.result).has_value()) {
      selected.results.push_back(
          chosen(find_result(selected.all, options.result, layer.path), options, layer.path));
    }
    visit(selected);
  }
}

std::string title(const Layer& layer, const std::string& result) {
  return shown_path(layer.path) + (result.empty() ? "" : " " + result);
}

void show_manifest(const Layers& layers, const Options& options) {
  using Align = Table::Align;
  Json entries = Json::array();
  Table table({{"index", Align::right},
               {"path"},
               {"type"},
               {"kind"},
               {"samples", Align::right},
               {"reduction"},
               {"dtype"},
               {"shape"},
               {"bytes", Align::right}});
  for (const auto& layer : layers.all) {
    if (!options.entry.empty() && layer.index != layers.at(options.entry).index) continue;
    const auto& entry = layer.entry;
    const bool values = !entry.dtype().empty();
    table.add({std::to_string(layer.index), shown_path(layer.path), entry.type(), entry.kind(),
               std::to_string(entry.samples()), entry.reduction().empty() ? "-" : entry.reduction(),
               values ? entry.dtype() : "-",
               values ? (entry.ragged() ? "ragged" : shape_to_text(entry.shape())) : "-",
               bytes_to_text(entry.bytes())});
    entries.push_back({{"index", layer.index},
                       {"path", layer.path},
                       {"aliases", entry.aliases()},
                       {"type", entry.type()},
                       {"kind", entry.kind()},
                       {"samples", entry.samples()},
                       {"reduction", entry.reduction()},
                       {"results", entry.keys()},
                       {"dtype", entry.dtype()},
                       {"shape", entry.shape()},
                       {"ragged", entry.ragged()},
                       {"file", entry.file()},
                       {"bytes", entry.bytes()}});
  }
  if (options.json) {
    print(Json{{"path", options.path},
               {"library", layers.library},
               {"created", layers.created},
               {"entries", std::move(entries)},
               {"texts", texts_as_json(layers)}});
  } else {
    table.print(std::cout);
    print_texts(layers);
  }
}

void show_stats(const Layers& layers, const Options& options) {
  using Align = Table::Align;
  Json list = Json::array();
  Table table({{"index", Align::right},
               {"path"},
               {"result"},
               {"elements", Align::right},
               {"mean", Align::right},
               {"std", Align::right},
               {"min", Align::right},
               {"max", Align::right},
               {"nan", Align::right},
               {"inf", Align::right}});
  each_selected(layers, options, [&](const Selected& selected) {
    for (const auto& result : selected.results) {
      const Stats stats = stats_of(result);
      table.add({std::to_string(selected.layer->index), shown_path(selected.layer->path),
                 result.name.empty() ? "-" : result.name, std::to_string(stats.elements), to_text(stats.mean),
                 to_text(stats.std), to_text(stats.min), to_text(stats.max), std::to_string(stats.nan),
                 std::to_string(stats.inf)});
      list.push_back({{"index", selected.layer->index},
                      {"path", selected.layer->path},
                      {"result", result.name},
                      {"elements", stats.elements},
                      {"mean", to_json(stats.mean)},
                      {"std", to_json(stats.std)},
                      {"min", to_json(stats.min)},
                      {"max", to_json(stats.max)},
                      {"nan", stats.nan},
                      {"inf", stats.inf}});
    }
  });
  if (options.json) {
    print(Json{{"path", options.path}, {"stats", std::move(list)}});
  } else {
    table.print(std::cout);
  }
}

void show_histogram(const Layers& layers, const Options& options) {
  Json list = Json::array();
  const auto show = [&](const Layer& layer, const std::string& result, const Bins& bins) {
    if (options.json) {
      list.push_back(
          {{"path", layer.path}, {"result", result}, {"counts", bins.counts}, {"edges", bins.edges}});
    } else {
      std::cout << title(layer, result) << '\n';
      print_histogram(std::cout, bins.counts, bins.edges);
    }
  };
  each_selected(layers, options, [&](const Selected& selected) {
    if (const auto bins = counted(selected.all, options.result)) {
      show(*selected.layer, options.result, *bins);
      return;
    }
    for (const auto& result : selected.results) {
      const Stats stats = stats_of(result);
      if (stats.elements > stats.nan + stats.inf) show(*selected.layer, result.name, bins_of(result, stats));
    }
  });
  if (options.json) print(Json{{"path", options.path}, {"histograms", std::move(list)}});
}

void show_values(const Layers& layers, const Options& options) {
  const Layer& layer = layers.at(options.entry);
  const auto results = results_of(layer.entry.value());
  const Result result = chosen(find_result(results, options.result, layer.path), options, layer.path);
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
      std::cout << ' ' << dtype_name(tensor.scalar_type()) << ' ' << shape_to_text(tensor.sizes().vec())
                << '\n'
                << tensor << '\n';
    } else {
      std::cout << " none\n";
    }
  }
}

}  // namespace

void add_show(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("show", "What is in a recording: a table, statistics, values");
  command->footer(kExamples);
  command->add_option("recording", options->path, "A recording, a .pt file, or a folder from Python")
      ->required()
      ->check(CLI::ExistingPath);
  auto* entry =
      command->add_option("--entry", options->entry,
                          "One module, by its path or, where none is called so, its index; '#3' is an index");
  command->add_option("--result", options->result, "One result of a reduction: variance, max.value");
  command->add_option("--sample", options->sample, "One of the samples that were kept, from 0")
      ->transform(whole_number(0))
      ->needs(entry);
  auto* stats = command->add_flag("--stats", options->stats, "Mean, std, min, max, NaN and infinities");
  command->add_flag("--histogram", options->histogram, "A histogram of the values")->excludes(stats);
  command->add_flag("--json", options->json, "For programs");
  command->callback([options] {
    const Layers layers = open_layers(options->path);
    if (options->stats) {
      show_stats(layers, *options);
    } else if (options->histogram) {
      show_histogram(layers, *options);
    } else if (!options->entry.empty()) {
      show_values(layers, *options);
    } else {
      show_manifest(layers, *options);
    }
  });
}

}  // namespace torchtap::tools
