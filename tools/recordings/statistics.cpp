#include "statistics.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include <torchtap/base/magnitude.hpp>

#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

/// The position of the base in `name`. A dot between digits belongs to a number: "q0.5".
std::size_t base_at(const std::string& name) {
  const auto digit = [&](std::size_t i) {
    return i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0;
  };
  for (std::size_t i = name.size(); i > 0; --i) {
    if (name[i - 1] == '.' && !(i >= 2 && digit(i - 2) && digit(i))) return i;
  }
  return 0;
}

std::string member_of(const std::string& name) {
  return name.substr(0, base_at(name));
}

/// "abs_max" of "AbsMax(over_all)".
std::string called(const std::string& reduction) {
  std::string name;
  for (const char c : reduction.substr(0, reduction.find('('))) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0 && !name.empty() && name.back() != '_' &&
        std::isupper(static_cast<unsigned char>(name.back())) == 0 &&
        std::islower(static_cast<unsigned char>(name.back())) != 0)
      name += '_';
    name += c;
  }
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.empty() ? "value" : name;
}

std::vector<double> to_list(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

/// All numbers of a result in one tensor.
at::Tensor flattened(const Result& result) {
  std::vector<at::Tensor> parts;
  for (const auto& tensor : result.tensors) {
    if (!tensor.defined()) continue;
    const at::Tensor real = tensor.is_complex() ? base::magnitude(tensor) : tensor;
    parts.push_back(real.to(at::kCPU, at::kDouble).flatten());
  }
  if (parts.empty()) return at::empty({0}, at::kDouble);
  return (parts.size() == 1 ? parts.front() : at::cat(parts)).contiguous();
}

bool are_whole(const Result& result) {
  return std::all_of(result.tensors.begin(), result.tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && at::isIntegralType(tensor.scalar_type(), true);
  });
}

/// The smallest and the largest of whole numbers.
std::optional<std::pair<std::int64_t, std::int64_t>> range_of(const Result& result) {
  std::optional<std::pair<std::int64_t, std::int64_t>> range;
  for (const at::Tensor& tensor : result.tensors) {
    if (tensor.numel() == 0) continue;
    const at::Tensor whole = tensor.to(at::kLong);
    const auto low = whole.min().item<std::int64_t>(), high = whole.max().item<std::int64_t>();
    range =
        range ? std::pair(std::min(range->first, low), std::max(range->second, high)) : std::pair(low, high);
  }
  return range;
}

Statistic make(std::string name, at::Tensor values, bool whole) {
  Statistic statistic;
  statistic.name = std::move(name);
  statistic.whole = whole;
  statistic.values = std::move(values);
  statistic.elements = statistic.values.numel();
  statistic.low = statistic.high = NAN;
  const double* data = statistic.values.data_ptr<double>();
  for (std::int64_t i = 0; i < statistic.elements; ++i) {
    const double value = data[i];
    if (std::isnan(value)) {
      ++statistic.nan;
    } else if (std::isinf(value)) {
      ++statistic.inf;
    } else {
      if (value == 0) ++statistic.zeros;
      if (!(value >= statistic.low)) statistic.low = value;
      if (!(value <= statistic.high)) statistic.high = value;
    }
  }
  return statistic;
}

const Result* find(const std::vector<Result>& results, const std::string& name) {
  const auto found =
      std::find_if(results.begin(), results.end(), [&](const Result& result) { return result.name == name; });
  return found == results.end() || found->list ? nullptr : &*found;
}

/// The numbers of a result for each of `rows` kept elements; zeros if there are none.
at::Tensor for_rows(const Result* result, std::int64_t rows) {
  const bool known = result != nullptr && result->tensors.front().numel() == rows;
  return known ? flattened(*result) : at::zeros({rows}, at::kDouble);
}

/// Whether `edges` has one number for each of `counts` bins, and `more`.
bool fits(const at::Tensor& edges, const at::Tensor& counts, std::int64_t more) {
  return edges.dim() == 1 && !edges.is_complex() && edges.size(0) == counts.size(1) + more;
}

/// Contiguous bins, made of the bins of a `LogHistogram`, which leaves out empty ones and counts zeros apart.
Bins joined(const at::Tensor& counts, const std::vector<double>& low, const std::vector<double>& high,
            const at::Tensor& zeros) {
  std::vector<double> edges;
  std::vector<at::Tensor> columns;
  const auto add = [&](double from, double to, const at::Tensor& column) {
    if (edges.empty()) edges.push_back(from);
    if (from > edges.back()) {  // empty, or the zeros between negative and positive numbers
      const bool around_zero = edges.back() < 0 && from > 0;
      columns.push_back(around_zero ? zeros : at::zeros_like(zeros));
      edges.push_back(from);
    }
    columns.push_back(column);
    edges.push_back(to);
  };
  const bool has_zeros = zeros.sum().item<double>() > 0;
  if (has_zeros && (low.empty() || low.front() > 0)) add(0, low.empty() ? 1 : low.front(), zeros);
  for (std::size_t i = 0; i < low.size(); ++i) {
    const at::Tensor column = counts.select(1, static_cast<std::int64_t>(i));
    const bool at_zero = low[i] == 0 || (high[i] == 0 && (i + 1 == low.size() || low[i + 1] > 0));
    add(low[i], high[i], at_zero ? column.add(zeros) : column);
  }
  if (has_zeros && !edges.empty() && edges.back() < 0) add(edges.back(), 0, zeros);
  Bins bins;
  if (columns.empty()) return bins;
  bins.counts = at::stack(columns, 1);
  bins.edges = at::tensor(edges, at::kDouble);
  return bins;
}

/// The histogram of `counts`, if they are the counts of one.
std::optional<Bins> histogram(const std::vector<Result>& results, const Result& counts) {
  if (base_of(counts.name) != "counts" || counts.list) return std::nullopt;
  const std::string member = member_of(counts.name);
  const auto beside = [&](const char* name) { return find(results, member + name); };
  const at::Tensor& counted = counts.tensors.front();
  if (counted.dim() == 0 || counted.is_complex()) return std::nullopt;
  const auto sizes = counted.sizes();
  const std::int64_t rows =
      std::accumulate(sizes.begin(), sizes.end() - 1, std::int64_t{1}, std::multiplies<std::int64_t>());
  const at::Tensor all = counted.to(at::kDouble).reshape({rows, counted.size(-1)}).contiguous();
  Bins bins;
  const char *below = "underflow", *above = "overflow";
  if (const Result* edges = beside("edges")) {
    if (all.size(1) == 0 || !fits(edges->tensors.front(), all, 1)) return std::nullopt;
    bins.counts = all;
    bins.edges = edges->tensors.front().to(at::kDouble).contiguous();
  } else if (beside("low") != nullptr && beside("high") != nullptr) {
    const at::Tensor &low = beside("low")->tensors.front(), &high = beside("high")->tensors.front();
    if (!fits(low, all, 0) || !fits(high, all, 0)) return std::nullopt;
    bins = joined(all, to_list(low), to_list(high), for_rows(beside("zeros"), rows));
    if (!bins.counts.defined()) return std::nullopt;
    below = "negative_infinity";
    above = "positive_infinity";
  } else {
    return std::nullopt;
  }
  bins.below = for_rows(beside(below), rows);
  bins.above = for_rows(beside(above), rows);
  return bins;
}

/// Whether `result` describes a statistic beside it, as levels and underflow do.
bool is_detail(const std::vector<Result>& results, const Result& result) {
  const std::string base = base_of(result.name);
  const std::string member = member_of(result.name);
  const auto beside = [&](const char* name) { return find(results, member + name) != nullptr; };
  if (base == "omitted") return true;
  const bool logarithmic = beside("low") && beside("high") && beside("counts");
  if (base == "zeros" || base == "negative_infinity" || base == "positive_infinity") return logarithmic;
  if (base != "underflow" && base != "overflow" && base != "nan") return false;
  return logarithmic || beside("edges") || beside("levels");
}

/// The name of a histogram, or of the only result of a member.
std::string without_base(const std::string& name, const std::string& otherwise) {
  const std::string member = member_of(name);
  return member.empty() ? otherwise : member.substr(0, member.size() - 1);
}

/// The results of `Blocks`, which has a row for each block, put together over all blocks; other results as
/// they are.
std::vector<Result> pooled(const std::vector<Result>& results) {
  std::vector<Result> all;
  for (const auto& result : results) {
    const std::string base = base_of(result.name), member = member_of(result.name);
    const Result *const squares = find(results, member + "sum_squares"),
                        *const counts = find(results, member + "counts"),
                        *const zeros = find(results, member + "zeros");
    if (squares == nullptr || counts == nullptr || zeros == nullptr || result.list ||
        counts->tensors.front().dim() != 2) {
      all.push_back(result);
      continue;
    }
    const at::Tensor& each = result.tensors.front();
    const auto add = [&](const char* name, at::Tensor tensor) {
      all.push_back({member + name, false, {std::move(tensor)}});
    };
    // Results of the blocks that have finite elements, or of one block if there are none.
    const at::Tensor known = each.masked_select(each.isnan().logical_not());
    const at::Tensor present = known.numel() == 0 ? each : known;
    if (base == "low" || base == "high") {
      all.push_back(result);
    } else if (base == "samples") {
      add("blocks", at::scalar_tensor(each.numel(), at::kLong));
    } else if (base == "min") {
      add("min", present.amin());
    } else if (base == "max") {
      add("max", present.amax());
    } else if (base == "sum") {
      const at::Tensor finite =
          at::add(counts->tensors.front().sum(), zeros->tensors.front().sum()).to(at::kDouble);
      const at::Tensor mean = each.sum().div(finite);
      add("mean", mean);
      add("variance", squares->tensors.front().sum().div(finite).sub(mean.square()).clamp_min(0));
    } else if (base != "sum_squares") {
      add(base.c_str(), each.sum(0));
    }
  }
  return all;
}

std::vector<Statistic> read(const std::vector<Result>& given, const std::string& reduction) {
  const std::vector<Result> results = pooled(given);
  std::vector<Statistic> all;
  for (const auto& result : results) {
    const std::string base = base_of(result.name);
    const std::string member = member_of(result.name);
    if (auto bins = histogram(results, result)) {
      Statistic statistic;
      statistic.name = without_base(result.name, "histogram");
      statistic.bins = std::move(bins);
      all.push_back(std::move(statistic));
      continue;
    }
    const bool is_edge = base == "edges" || base == "low" || base == "high";
    const Result* counts = is_edge ? find(results, member + "counts") : nullptr;
    if (counts != nullptr && histogram(results, *counts).has_value()) continue;
    const Result* levels = base == "quantiles" ? find(results, member + "levels") : nullptr;
    if (levels != nullptr && !result.list && result.tensors.front().dim() > 0 &&
        levels->tensors.front().numel() == result.tensors.front().size(0)) {
      const auto at = to_list(levels->tensors.front());
      for (std::size_t i = 0; i < at.size(); ++i) {
        const at::Tensor of_level = result.tensors.front().select(0, static_cast<std::int64_t>(i));
        all.push_back(
            make(member + "q" + to_text(at[i]), of_level.to(at::kDouble).flatten().contiguous(), false));
      }
      continue;
    }
    if (base == "levels" && find(results, member + "quantiles") != nullptr) continue;
    std::string name = result.name;
    at::Tensor values = flattened(result);
    if (base == "variance" && find(results, member + "std") == nullptr) {
      name = member + "std";
      values = values.sqrt();
    } else if (base == "value" || base.empty()) {
      name = without_base(result.name, called(reduction));
    }
    all.push_back(make(std::move(name), std::move(values), are_whole(result)));
    if (all.back().whole) all.back().range = range_of(result);
    all.back().detail = is_detail(results, result);
    if (!result.list) all.back().dimensions = result.tensors.front().dim();
  }
  return all;
}

/// The key of "By(labels, 10, Mean)", and the reduction of each group.
struct Grouped {
  std::string name, reduction;
};

std::optional<Grouped> grouped(const std::string& reduction) {
  const std::string by = "By(", where = "Where(", separator = ", ";
  const bool masked = reduction.compare(0, where.size(), where) == 0;
  const auto name_end = reduction.find(separator);
  if (name_end == std::string::npos || (!masked && reduction.compare(0, by.size(), by) != 0))
    return std::nullopt;
  std::string rest = reduction.substr(name_end + separator.size());
  rest.pop_back();                   // ")"
  if (masked) return grouped(rest);  // has its results
  const auto number = rest.find_first_not_of("0123456789");
  if (number != 0 && number != std::string::npos) rest = rest.substr(number + separator.size());
  return Grouped{reduction.substr(by.size(), name_end - by.size()), rest};
}

/// The results of one key: its row of each, or its own results if shapes differ by key, such as "counts.3".
std::vector<Result> of_key(const std::vector<Result>& results, const std::string& name, std::int64_t row,
                           std::int64_t key) {
  const std::string end = "." + std::to_string(key);
  std::vector<Result> all;
  for (const Result& result : results) {
    if (result.list || result.name == name || result.name == name + ".left_out") continue;
    const bool alone = result.name.size() > end.size() &&
                       result.name.compare(result.name.size() - end.size(), end.size(), end) == 0;
    if (alone) {
      all.push_back({result.name.substr(0, result.name.size() - end.size()), false, result.tensors});
    } else if (const at::Tensor& stacked = result.tensors.front();
               stacked.dim() > 0 && stacked.size(0) == find(results, name)->tensors.front().numel()) {
      all.push_back({result.name, false, {stacked.select(0, row)}});
    }
  }
  return all;
}

/// The statistics of each key that has rows; of one reduction, if it has no keys.
void add_each(std::vector<Statistics>& all, Statistics begun, const std::vector<Result>& results,
              const std::string& reduction) {
  const auto by = grouped(reduction);
  const Result* const keys = by ? find(results, by->name) : nullptr;
  const Result* const counts = by ? find(results, by->name + ".count") : nullptr;
  if (keys == nullptr || counts == nullptr ||
      keys->tensors.front().sizes() != counts->tensors.front().sizes()) {
    begun.all = read(results, reduction);
    return all.push_back(std::move(begun));
  }
  const Result* const left_out = find(results, by->name + ".left_out");
  begun.left_out.emplace_back(by->name,
                              left_out == nullptr ? 0 : left_out->tensors.front().sum().item<std::int64_t>());
  const auto key = to_list(keys->tensors.front()), count = to_list(counts->tensors.front());
  for (std::size_t row = 0; row < key.size(); ++row) {
    if (count[row] == 0) continue;
    const auto number = static_cast<std::int64_t>(key[row]);
    Statistics one = begun;
    one.keys.emplace_back(by->name, number);
    add_each(all, std::move(one), of_key(results, by->name, static_cast<std::int64_t>(row), number),
             by->reduction);
  }
}

}  // namespace

std::string keys_text(const Keys& keys) {
  std::string text;
  for (const auto& [name, key] : keys) text += " " + name + "=" + std::to_string(key);
  return text;
}

std::vector<double> Bins::total() const {
  return to_list(counts.sum(0));
}

std::vector<double> Bins::edge_list() const {
  return to_list(edges);
}

Bins Bins::by_octave() const {
  const auto all = edge_list();
  // A bin that is wider than an octave, or around zero, stays alone.
  const auto octave = [&](std::size_t bin) -> std::optional<std::pair<bool, int>> {
    const double near = std::min(std::abs(all[bin]), std::abs(all[bin + 1]));
    const double far = std::max(std::abs(all[bin]), std::abs(all[bin + 1]));
    if (near == 0 || std::signbit(all[bin]) != std::signbit(all[bin + 1]) ||
        far > std::ldexp(1.0, std::ilogb(near) + 1))
      return std::nullopt;
    return std::pair(std::signbit(all[bin]), std::ilogb(near));
  };
  std::vector<double> kept{all.front()};
  std::vector<at::Tensor> columns;
  for (std::size_t bin = 0; bin + 1 < all.size(); ++bin) {
    const at::Tensor column = counts.select(1, static_cast<std::int64_t>(bin));
    if (bin != 0 && octave(bin).has_value() && octave(bin) == octave(bin - 1)) {
      columns.back() = columns.back().add(column);
      kept.back() = all[bin + 1];
    } else {
      columns.push_back(column);
      kept.push_back(all[bin + 1]);
    }
  }
  return {at::stack(columns, 1), at::tensor(kept, at::kDouble), below, above};
}

bool Bins::even() const {
  const auto all = edge_list();
  const double width = (all.back() - all.front()) / static_cast<double>(all.size() - 1);
  return std::adjacent_find(all.begin(), all.end(), [&](double low, double high) {
           return std::abs(high - low - width) > width / 2;
         }) == all.end();
}

Bins Bins::drawn() const {
  return even() ? *this : by_octave();
}

std::string base_of(const std::string& name) {
  return name.substr(base_at(name));
}

std::string Statistic::base() const {
  return base_of(name);
}

std::string Statistic::member() const {
  return member_of(name);
}

double Statistic::value() const {
  return values.data_ptr<double>()[0];
}

double Statistic::peak() const {
  return std::max(std::abs(low), std::abs(high));
}

const Statistic* Statistics::find(const std::string& name) const {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const Statistic* Statistics::find_base(const std::string& base) const {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.base() == base; });
  return found == all.end() ? nullptr : &*found;
}

const Statistic* Statistics::like(const Statistic& statistic, const Statistics& of) const {
  if (const Statistic* same = find(statistic.name)) return same;
  const auto number = [&](const Statistics& statistics) {
    return std::count_if(statistics.all.begin(), statistics.all.end(),
                         [&](const Statistic& one) { return one.base() == statistic.base(); });
  };
  return number(*this) == 1 && number(of) == 1 ? find_base(statistic.base()) : nullptr;
}

const Statistic* Statistics::beside(const Statistic& statistic, const std::string& base) const {
  return find(statistic.member() + base);
}

bool has_statistics(const storage::RecordedEntry& entry) {
  if (!entry.reduction().empty()) return true;
  const auto has = [&](const char* base) {
    return std::any_of(entry.keys().begin(), entry.keys().end(),
                       [&](const std::string& key) { return base_of(key) == base; });
  };
  return (has("mean") && has("variance")) || (has("counts") && (has("edges") || (has("low") && has("high"))));
}

bool has_statistics(const Layers& layers) {
  return std::any_of(layers.all.begin(), layers.all.end(),
                     [](const Layer& layer) { return has_statistics(layer.entry); });
}

bool is_slot(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 10;
}

std::vector<std::pair<std::int64_t, core::Value>> slots_of(const core::Value& value) {
  // If all tensors of a module were recorded, each has its own results under its number.
  const auto has_slot = [](const auto& item) { return is_slot(item.first); };
  if (!value.is_dict() || !std::all_of(value.dict().begin(), value.dict().end(), has_slot))
    return {{-1, value}};
  std::vector<std::pair<std::int64_t, core::Value>> slots;
  for (const auto& [key, item] : value.dict()) slots.emplace_back(std::stol(key), item);
  return slots;
}

std::vector<Statistics> statistics_of(const storage::RecordedEntry& entry) {
  const core::Value value = entry.value();
  std::vector<Statistics> all;
  if (value.is_none()) return all;
  for (const auto& [slot, item] : slots_of(value))
    add_each(all, {slot, {}, {}, {}}, results_of(item), entry.reduction());
  return all;
}

std::optional<Bins> bins_of(const std::vector<Result>& results, const std::string& name) {
  for (const auto& result : results) {
    if (!name.empty() && name != result.name && name + "." != member_of(result.name)) continue;
    if (auto bins = histogram(results, result)) return bins;
  }
  return std::nullopt;
}

}  // namespace torchtap::tools
