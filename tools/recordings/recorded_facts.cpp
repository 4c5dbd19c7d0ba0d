#include "recorded_facts.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include <torchtap/base/magnitude.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/views/text/units.hpp>

#include "large_results.hpp"
#include "statistics_table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

using rules::Facts;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

bool is_any_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
}

double sum_of(const Statistic* one) {
  return one == nullptr || one->bins.has_value() ? 0 : one->values.nansum().item<double>();
}

/// Whether NaN is a normal result: 0 / 0 for a single value or a constant, or, where NaN and infinities are
/// counted beside, no finite value at all.
bool may_be_nan(const Statistics& row, const Statistic& one) {
  return is_any_of(one.base(), {"std", "skewness", "kurtosis", "covariance", "correlation"}) ||
         row.beside(one, "negative_infinity") != nullptr;
}

/// Counts of a `Count`: exact, of all elements.
bool take_counts(const Statistics& row, Facts& facts) {
  const Statistic* const elements = row.find_base("elements");
  if (elements == nullptr) return false;
  facts.count = sum_of(elements);
  facts.nan = sum_of(row.beside(*elements, "nan"));
  facts.inf = sum_of(row.beside(*elements, "inf"));
  facts.zeros = sum_of(row.beside(*elements, "zeros"));
  return true;
}

/// The bins of a histogram without its zeros. `counted`: whether the counts of all elements are known
/// already.
void take_bins(const Statistics& row, const Statistic& histogram, bool counted, Facts& facts) {
  // The members of a series are called "log_histogram.zeros" and the histogram "log_histogram".
  const auto detail = [&](const char* base) -> const Statistic* {
    if (const Statistic* found = row.find(histogram.name + "." + base)) return found;
    const Statistic* const found = row.find(base);
    return found != nullptr && found->detail ? found : nullptr;
  };
  const Bins& bins = *histogram.bins;
  const double below = bins.below.sum().item<double>(), above = bins.above.sum().item<double>();
  const Statistic* const below_all = detail("negative_infinity");
  const bool logarithmic = below_all != nullptr;  // without limits, so that what is beyond them is infinite
  const auto counts = bins.total(), edges = bins.edge_list();
  double all = 0;
  for (const double count : counts) all += count;
  if (!counted) {
    facts.nan = sum_of(detail("nan"));
    if (logarithmic) {
      facts.inf = below + above;
      facts.zeros = sum_of(detail("zeros"));
    }
    facts.count = all + below + above + *facts.nan;
  }
  double zeros = facts.zeros.value_or(0);
  const auto put = [&](double low, double high, double count) {
    if (low <= 0 && high >= 0) {
      const double here = std::min(zeros, count);
      zeros -= here;
      count -= here;
    }
    if (count > 0) facts.bins.push_back({low, high, count});
  };
  if (!logarithmic) put(-kNoLimit, edges.front(), below);
  for (std::size_t i = 0; i < counts.size(); ++i) put(edges[i], edges[i + 1], counts[i]);
  if (!logarithmic) put(edges.back(), kNoLimit, above);
}

/// The share of channels in which less than 1 % of the elements are nonzero, where a `LogHistogram` has one
/// row for each channel.
void take_channels(const Statistics& row, const Statistic& histogram, Facts& facts) {
  const Statistic* const zeros = row.find_base("zeros");
  if (zeros == nullptr || !zeros->detail || zeros->dimensions != 1 || zeros->elements < 2 ||
      row.find_base("sum_squares") != nullptr || histogram.bins->counts.size(0) != zeros->elements)
    return;
  const at::Tensor all = histogram.bins->counts.sum(1).add(histogram.bins->below).add(histogram.bins->above);
  const at::Tensor active = all.sub(zeros->values).div(all.clamp_min(1));
  facts.inactive_channels = active.lt(0.01).to(at::kDouble).mean().item<double>();
}

/// Mean, deviation and root mean square of all kept elements together, which have the same number of rows.
void take_moments(const Statistics& row, Facts& facts) {
  if (const Statistic* squares = row.find_base("sum_squares");
      squares != nullptr && facts.count) {  // of Blocks
    const double finite = *facts.count - *facts.nan - *facts.inf;
    if (finite <= 0) return;
    facts.mean = sum_of(row.beside(*squares, "sum")) / finite;
    const double mean_square = sum_of(squares) / finite;
    facts.rms = std::sqrt(mean_square);
    facts.std = std::sqrt(std::max(0.0, mean_square - *facts.mean * *facts.mean));
    return;
  }
  const Statistic* const std = row.find_base("std");
  const Statistic* const mean = std == nullptr ? row.find_base("mean") : row.beside(*std, "mean");
  if (mean != nullptr && !mean->bins.has_value() && mean->elements > 0) {
    const double middle = mean->values.nanmean().item<double>();
    if (std::isfinite(middle)) facts.mean = middle;
  }
  if (std != nullptr && mean != nullptr && !std->bins.has_value() && std->elements == mean->elements &&
      std->elements > 0) {
    if (std->single()) {
      if (std::isfinite(std->value())) facts.std = std->value();
    } else {
      const at::Tensor whole = std->values.square().add(mean->values.square());
      const double square = whole.nanmean().item<double>(), middle = facts.mean.value_or(0);
      if (std::isfinite(square)) facts.std = std::sqrt(std::max(0.0, square - middle * middle));
    }
    if (facts.std && facts.mean) facts.rms = std::hypot(*facts.std, *facts.mean);
  }
}

/// A norm of order 2 is a root mean square once it is known of how many elements.
void take_norm(const Statistics& row, const std::string& reduction, Facts& facts) {
  const Statistic* const norm = row.find_base("norm");
  if (norm == nullptr || norm->bins.has_value() || norm->elements == 0 || norm->nan + norm->inf > 0) return;
  const double square = norm->values.square().sum().item<double>();
  if (square == 0) {
    facts.rms = 0;
  } else if (!facts.rms && facts.count.value_or(0) > 0 && reduction.find("Norm(2") != std::string::npos) {
    facts.rms = std::sqrt(square / *facts.count);
  }
}

void take_extrema(const Statistics& row, Facts& facts) {
  const auto take = [](const Statistic* least, const Statistic* most, Facts& to) {
    if (least == nullptr || most == nullptr || std::isnan(least->low) || std::isnan(most->high)) return false;
    to.min = least->low;
    to.max = most->high;
    return true;
  };
  const auto plain = [&](const char* base) {
    const Statistic* const one = row.find_base(base);
    return one == nullptr || one->bins.has_value() ? nullptr : one;
  };
  if (take(plain("min"), plain("max"), facts)) return;
  if (const Statistic* const most = plain("abs_max"); most != nullptr && !std::isnan(most->high)) {
    facts.min = -most->high;  // one of both
    facts.max = most->high;
    return;
  }
  for (const char* base : {"first", "last", "ema", "mean"}) {
    const Statistic* const one = plain(base);
    if (one != nullptr && one->elements > 1 && take(one, one, facts)) return;
  }
}

/// Whether a result may be infinite of finite values: their squares and sums leave float64.
bool may_overflow(const Statistic& one) {
  return is_any_of(one.base(),
                   {"mean", "std", "skewness", "kurtosis", "sum", "sum_squares", "norm", "covariance"});
}

/// NaN and infinities in results, where they were not counted.
void take_nonfinite(const Statistics& row, Facts& facts) {
  const auto is_finite = [](const std::optional<double>& number) { return number && std::isfinite(*number); };
  const bool are_finite = (facts.nan == 0.0 && facts.inf == 0.0) || is_finite(facts.mean) ||
                          (is_finite(facts.min) && is_finite(facts.max));
  bool nan = false, inf = false;
  for (const auto& one : row.all) {
    if (one.bins.has_value()) continue;
    if (is_any_of(one.base(), {"nan", "omitted", "inf", "negative_infinity", "positive_infinity"})) {
      (is_any_of(one.base(), {"nan", "omitted"}) ? nan : inf) |= one.high > 0;
    } else {
      inf = inf || (one.inf > 0 && !(are_finite && may_overflow(one)));
      nan = nan || (one.nan > 0 && !may_be_nan(row, one) && !(are_finite && may_overflow(one)));
    }
  }
  const double known = facts.nan.value_or(0) + facts.inf.value_or(0);
  // A mean of no values is NaN.
  if (known > 0 || (!nan && !inf) || facts.count == 0.0) return;
  facts.count.reset();
  if (nan) facts.nan = 1;
  if (inf) facts.inf = 1;
}

/// The number of rows that a reduction folded, if its state has it.
std::optional<double> rows_of_state(const std::vector<core::SavedSink>& states, std::size_t slot) {
  if (slot >= states.size()) return std::nullopt;
  const std::string& recipe = states[slot].recipe;
  const auto open = recipe.rfind('(');
  // Other combinators do not fold everything that was recorded.
  if (open != std::string::npos && recipe.compare(0, open, "Series") != 0 &&
      recipe.compare(0, open, "AnySeries") != 0)
    return std::nullopt;
  try {
    return static_cast<double>(reductions::restore(states[slot]).count());
  } catch (const c10::Error&) {  // of a newer version, or a type of the program's own
    return std::nullopt;
  }
}

void read_statistics(const Layer& layer, const Statistics& row, const std::vector<core::SavedSink>& states,
                     std::size_t slot, Facts& facts) {
  const bool counted = take_counts(row, facts);
  bool bins = false;
  for (const auto& one : row.all) {
    if (!one.bins.has_value() || bins) continue;
    take_bins(row, one, counted, facts);
    take_channels(row, one, facts);
    bins = true;
  }
  if (!facts.count && row.keys.empty()) {
    const auto kept = std::find_if(row.all.begin(), row.all.end(), [](const Statistic& one) {
      return !one.bins.has_value() && !one.detail && one.elements > 0;
    });
    const auto rows = rows_of_state(states, slot);
    if (rows && kept != row.all.end()) facts.count = *rows * static_cast<double>(kept->elements);
  }
  take_moments(row, facts);
  take_norm(row, layer.entry.reduction(), facts);
  take_extrema(row, facts);
  take_nonfinite(row, facts);
}

/// The catalogue's limits for values, between -1 and 1 and not 0.
std::vector<double> thresholds() {
  std::vector<double> all;
  for (const rules::RuleInfo& rule : rules::catalogue()) {
    if (rule.name != "saturated") continue;
    for (const auto& [key, value] : rule.keys) {
      if (key == "share") continue;
      all.push_back(value);
      if (key == "tanh") all.push_back(-value);
    }
  }
  return all;
}

/// Cuts the bin in which `edge` lies into two. `above`: the number of finite values above `edge`.
void cut_bins(Facts& facts, double edge, double above) {
  for (std::size_t i = facts.bins.size(); i-- > 0;) {
    rules::Bin& bin = facts.bins[i];
    if (bin.low >= edge) above -= bin.count;
    if (bin.low >= edge || bin.high <= edge) continue;
    const rules::Bin upper{edge, bin.high, above - (bin.low < 0 && edge < 0 ? facts.zeros.value_or(0) : 0)};
    bin = {bin.low, edge, bin.count - upper.count};
    facts.bins.insert(facts.bins.begin() + static_cast<std::ptrdiff_t>(i) + 1, upper);
    return;
  }
}

/// The share of channels in which less than 1 % of the elements are nonzero, if dimension 1 of the samples
/// has the channels. With three dimensions it may be time.
std::optional<double> inactive_channels(const Result& samples) {
  at::Tensor active;
  double each = 0;
  TensorReader reader(samples);
  while (const at::Tensor* const sample = reader.next()) {
    if (!sample->defined() || sample->dim() < 2 || sample->dim() == 3 ||
        (active.defined() && active.numel() != sample->size(1)))
      return std::nullopt;
    const at::Tensor here = sample->ne(0).transpose(0, 1).flatten(1).sum(1).to(at::kDouble);
    active = active.defined() ? active.add(here) : here;
    if (sample->size(1) != 0)
      each += static_cast<double>(sample->numel()) / static_cast<double>(sample->size(1));
  }
  if (!active.defined() || active.numel() < 2 || each == 0) return std::nullopt;
  return active.div(each).lt(0.01).to(at::kDouble).mean().item<double>();
}

/// The results of reductions for kept samples. The magnitudes of complex numbers are judged.
void read_samples(const Result& samples, Facts& facts) {
  using namespace reductions;
  const auto number = [](const at::Tensor& tensor) { return tensor.to(at::kDouble).item<double>(); };
  Moments moments(MomentsOptions().order(2).over_all(true).non_finite(NonFinite::omit));
  Min min(MinOptions().over_all(true).non_finite(NonFinite::omit));
  Max max(MaxOptions().over_all(true).non_finite(NonFinite::omit));
  LogHistogram histogram(LogHistogramOptions(7).over_all(true));
  const std::vector<double> edges = thresholds();
  std::vector<double> above(edges.size(), 0.0);
  double count = 0;
  each_block(samples, [&](const at::Tensor& block) {
    const at::Tensor real = block.is_complex()                 ? base::magnitude(block)
                            : block.scalar_type() == at::kBool ? block.to(at::kByte)
                                                               : block;
    moments.update(real);
    min.update(real);
    max.update(real);
    histogram.update(real);
    count += static_cast<double>(real.numel());
    for (std::size_t i = 0; i < edges.size(); ++i) above[i] += number(real.gt(edges[i]).sum());
  });
  if (!samples.list && samples.tensors.front().defined()) facts.dimensions = samples.tensors.front().dim();
  if (count == 0) return;
  facts.count = count;
  facts.nan = number(histogram.nan());
  facts.inf = number(histogram.negative_infinity()) + number(histogram.positive_infinity());
  facts.zeros = number(histogram.zeros());
  const double finite = count - *facts.nan - *facts.inf;
  if (finite == 0) return;
  facts.min = number(min.value());
  facts.max = number(max.value());
  facts.mean = number(moments.mean());
  facts.std = finite > 1 ? std::sqrt(number(moments.variance())) : 0;
  facts.rms = std::hypot(*facts.mean, *facts.std * std::sqrt((finite - 1) / finite));
  const at::Tensor counts = histogram.counts(), low = histogram.low(), high = histogram.high();
  for (std::int64_t i = 0; i < counts.numel(); ++i)
    facts.bins.push_back({low[i].item<double>(), high[i].item<double>(), number(counts[i])});
  for (std::size_t i = 0; i < edges.size(); ++i)
    cut_bins(facts, edges[i], above[i] - number(histogram.positive_infinity()));
  facts.inactive_channels = inactive_channels(samples);
}

/// Of modules with paths: whether they have modules inside, and may have run without being called.
class Structure {
 public:
  explicit Structure(const Layers& layers) : layers_(layers) {
    for (const Layer& layer : layers.all) {
      types_.emplace(layer.path, views::text::type_text(layer.entry.type()));
      any_ran_ = any_ran_ || layer.entry.samples() > 0;
    }
  }

  bool is_leaf(const Layer& layer) const {
    if (layer.path.empty()) return types_.size() == 1;
    const auto next = types_.lower_bound(layer.path + ".");
    return next == types_.end() || next->first.rfind(layer.path + ".", 0) != 0;
  }
  /// Calls of a module; nothing if it may have been used without a call.
  std::optional<double> calls(const Layer& layer) const {
    if (layer.entry.samples() > 0) return static_cast<double>(layer.entry.samples());
    if (!layers_.recorded || !any_ran_ || !layer.entry.note().empty() || !is_leaf(layer)) return std::nullopt;
    // Attention, and with it a transformer, reads the parameters of modules inside of it.
    for (std::size_t end = layer.path.rfind('.'); end != std::string::npos && end != 0;
         end = layer.path.rfind('.', end - 1)) {
      const auto around = types_.find(layer.path.substr(0, end));
      if (around != types_.end() && (around->second.find("Attention") != std::string::npos ||
                                     around->second.find("Transformer") != std::string::npos))
        return std::nullopt;
    }
    return 0;
  }

 private:
  const Layers& layers_;
  std::map<std::string, std::string> types_;
  bool any_ran_ = false;
};

}  // namespace

std::vector<RecordedTensor> recorded_tensors(const Layers& layers, bool with_samples) {
  const Structure structure(layers);
  std::vector<RecordedTensor> rows;
  for (const Layer& layer : layers.all) {
    Facts facts;
    facts.path = layer.path;
    facts.type = layer.entry.type();
    facts.tensor = tensor_of(layer.entry.kind());
    facts.leaf = structure.is_leaf(layer);
    facts.calls = structure.calls(layer);
    const std::size_t before = rows.size();
    if (has_statistics(layer.entry)) {
      const auto states = layer.entry.state();
      for (auto& statistics : statistics_of(layer.entry)) {
        rows.push_back({&layer, std::move(statistics), facts});
        RecordedTensor& row = rows.back();
        const auto slot = static_cast<std::size_t>(std::max<std::int64_t>(row.statistics.slot, 0));
        row.facts.slot = static_cast<std::int64_t>(slot);
        read_statistics(layer, row.statistics, states, slot, row.facts);
      }
    } else if (with_samples && layer.entry.samples() > 0) {
      for (const Result& result : results_on_disk(layer.entry)) {
        rows.push_back({&layer, {}, facts});
        rows.back().facts.slot = static_cast<std::int64_t>(rows.size() - before) - 1;
        read_samples(result, rows.back().facts);
      }
    }
    if (rows.size() == before) rows.push_back({&layer, {}, facts});
  }
  return rows;
}

std::vector<std::vector<rules::Finding>> findings_of(const std::vector<RecordedTensor>& rows,
                                                     const rules::Rules& rules) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& entry = rows[i].layer->entry;
    // Named tensors of a file do not say which of them belong together.
    const bool alone = rows[i].facts.tensor == rules::Tensor::parameter;
    alike[{alone ? "#" + std::to_string(i) : entry.kind(), entry.samples() == 0 ? "" : entry.reduction(),
           keys_text(rows[i].statistics.keys)}]
        .push_back(i);
  }
  std::vector<std::vector<rules::Finding>> findings(rows.size());
  for (const auto& [what, places] : alike) {
    std::vector<Facts> facts;
    for (const std::size_t place : places) facts.push_back(rows[place].facts);
    std::size_t at = 0;
    for (auto& finding : rules::check(facts, rules)) {
      // Findings are in the order of the facts.
      while (facts[at].path != finding.path || facts[at].slot != finding.slot) ++at;
      findings[places[at]].push_back(std::move(finding));
    }
  }
  return findings;
}

bool has_nonfinite(const Statistics& statistics) {
  Facts facts;
  const bool counted = take_counts(statistics, facts);
  for (const auto& one : statistics.all) {
    if (one.bins.has_value()) take_bins(statistics, one, counted, facts);
  }
  take_moments(statistics, facts);
  take_extrema(statistics, facts);
  take_nonfinite(statistics, facts);
  return facts.nan.value_or(0) + facts.inf.value_or(0) > 0;
}

std::string meaning_of(const std::string& rule) {
  for (const rules::RuleInfo& info : rules::catalogue()) {
    if (info.name != rule) continue;
    std::string text = info.holds;
    for (const auto& [key, value] : info.keys) {
      const std::string name = "`" + key + "`";
      for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at))
        text.replace(at, name.size(), to_text(value));
    }
    return text;
  }
  return "";
}

}  // namespace torchtap::tools
