#include "tensorboard.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "recordings/large_results.hpp"
#include "recordings/statistics.hpp"

namespace torchtap::tools {
namespace {

using views::tensorboard::EventFile;
using views::tensorboard::HistogramValue;

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

/// The results of one reduction of a series, whose names begin with `member`.
class Member {
 public:
  Member(const std::vector<Result>& results, std::string member)
      : results_(results), member_(std::move(member)) {}
  /// Whether there is a tensor of that name.
  bool has(const char* name) const { return find(name) != nullptr; }
  /// Its numbers; none if there is no such result.
  std::vector<double> numbers(const char* name) const {
    const Result* const result = find(name);
    return result == nullptr ? std::vector<double>() : numbers_of(result->tensors.front());
  }
  double sum(const char* name) const {
    const Result* const result = find(name);
    return result == nullptr ? 0 : result->tensors.front().sum().item<double>();
  }
  /// Counts with the bins in their last dimension, summed over all others.
  std::vector<double> bins(const char* name) const {
    const at::Tensor& counts = find(name)->tensors.front();
    std::vector<std::int64_t> rows(static_cast<std::size_t>(counts.dim() - 1));
    std::iota(rows.begin(), rows.end(), 0);
    return numbers_of(rows.empty() ? counts : counts.sum(rows));
  }
  at::Tensor tensor(const char* name) const { return find(name)->tensors.front(); }

 private:
  const Result* find(const char* name) const {
    const auto found = std::find_if(results_.begin(), results_.end(), [&](const Result& result) {
      return result.name == member_ + name && !result.list && result.tensors.front().defined();
    });
    return found == results_.end() ? nullptr : &*found;
  }
  const std::vector<Result>& results_;
  const std::string member_;
};

/// Extrema from the bins, and sums as if each value lay in the middle of its bin.
HistogramValue with_estimates(HistogramValue value, double min, double max) {
  value.min = min;
  value.max = max;
  value.num = value.sum = value.sum_squares = 0;
  for (std::size_t i = 0; i < value.limits.size(); ++i) {
    const double left = i == 0 ? min : std::max(value.limits[i - 1], min);
    const double middle = left / 2 + std::min(value.limits[i], max) / 2;
    value.num += value.counts[i];
    value.sum += value.counts[i] * middle;
    value.sum_squares += value.counts[i] * middle * middle;
  }
  return value;
}

HistogramValue of_log_histogram(const Member& results) {
  const auto low = results.numbers("low"), high = results.numbers("high");
  const double zeros = results.sum("zeros");
  double min = low.empty() ? 0 : low.front(), max = high.empty() ? 0 : high.back();
  if (zeros != 0) min = std::min(min, 0.), max = std::max(max, 0.);
  return with_estimates(views::tensorboard::histogram_of(low, high, results.bins("counts"), zeros), min, max);
}

/// Bins with their lower edges; the last one has its upper edge, too. Values outside have a bucket at each
/// end.
HistogramValue of_edges(const Member& results) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  HistogramValue value;
  const auto edges = results.numbers("edges");
  value.limits = edges;
  value.limits.back() = std::nextafter(edges.back(), kInfinity);
  value.counts = results.bins("counts");
  value.counts.insert(value.counts.begin(), results.sum("underflow"));
  if (const double above = results.sum("overflow"); above != 0) {
    value.limits.push_back(std::numeric_limits<double>::max());
    value.counts.push_back(above);
  }
  return with_estimates(std::move(value), edges.front(), edges.back());
}

class Writer {
 public:
  Writer(EventFile& file, std::string name) : file_(file), name_(std::move(name)) {}

  void scalar(const std::string& tag, std::int64_t step, double value) {
    file_.scalar(name_ + "/" + tag, step, value);
    note(tag, "scalar");
  }
  void histogram(const std::string& tag, std::int64_t step, const HistogramValue& value) {
    file_.histogram(name_ + "/" + tag, step, value);
    note(tag, "histogram");
  }
  Json written() const { return written_; }

 private:
  void note(const std::string& tag, const char* kind) {
    const std::string whole = name_ + "/" + tag;
    for (Json& one : written_) {
      if (one.at("tag") == whole) {
        one["steps"] = one.at("steps").get<std::int64_t>() + 1;
        return;
      }
    }
    written_.push_back({{"tag", whole}, {"kind", kind}, {"steps", 1}});
  }

  EventFile& file_;
  const std::string name_;
  Json written_ = Json::array();
};

/// The kept samples, each with its number, if all are single real numbers; else none.
std::vector<std::pair<std::int64_t, double>> numbers_of(const Result& samples) {
  std::vector<std::pair<std::int64_t, double>> numbers;
  TensorReader reader(samples);
  std::int64_t step = 0;
  for (const at::Tensor* one = nullptr; samples.list && (one = reader.next()) != nullptr; ++step) {
    if (!one->defined()) continue;
    if (one->numel() != 1 || one->is_complex()) return {};
    numbers.emplace_back(step, one->to(at::kDouble).item<double>());
  }
  return numbers;
}

/// A step for each block of `Blocks`.
void write_blocks(Writer& writer, const Member& results, const std::string& tag) {
  const auto low = results.numbers("low"), high = results.numbers("high");
  const at::Tensor counts = results.tensor("counts");
  const auto zeros = results.numbers("zeros"), nan = results.numbers("nan"), min = results.numbers("min"),
             max = results.numbers("max"), sum = results.numbers("sum"),
             squares = results.numbers("sum_squares"), below = results.numbers("negative_infinity"),
             above = results.numbers("positive_infinity");
  const std::string begin = tag == "histogram" ? "" : tag + ".";
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i);
    HistogramValue value =
        views::tensorboard::histogram_of(low, high, numbers_of(counts.select(0, step)), zeros.at(i));
    value.min = min.at(i);
    value.max = max.at(i);
    value.sum = sum[i];
    value.sum_squares = squares.at(i);
    const double mean = value.sum / value.num, square = value.sum_squares / value.num;
    const double infinite = below.at(i) + above.at(i);
    writer.histogram(tag, step, value);
    writer.scalar(begin + "mean", step, mean);
    writer.scalar(begin + "rms", step, std::sqrt(square));
    writer.scalar(begin + "std", step, std::sqrt(std::max(square - mean * mean, 0.)));
    writer.scalar(begin + "min", step, value.min);
    writer.scalar(begin + "max", step, value.max);
    writer.scalar(begin + "zero_ratio", step, zeros[i] / (value.num + nan.at(i) + infinite));
    writer.scalar(begin + "nan", step, nan[i]);
    writer.scalar(begin + "inf", step, infinite);
  }
}

}  // namespace

Json write_to_tensorboard(EventFile& file, const std::string& name, const storage::RecordedEntry& entry) {
  Json written = Json::array();
  if (!has_statistics(entry)) {
    for (const Result& result : results_on_disk(entry)) {
      Writer writer(file, name + (is_slot(result.name)  ? "[" + result.name + "]"
                                  : result.name.empty() ? ""
                                                        : "/" + result.name));
      for (const auto& [step, value] : numbers_of(result)) writer.scalar("value", step, value);
      for (Json& one : writer.written()) written.push_back(std::move(one));
    }
    return written;
  }
  const core::Value value = entry.value();
  if (value.is_none()) return written;
  const auto named = [&](std::int64_t slot) {
    return slot < 0 ? name : name + "[" + std::to_string(slot) + "]";
  };
  std::set<std::string> of_blocks;  // members
  for (const auto& [slot, item] : slots_of(value)) {
    Writer writer(file, named(slot));
    const auto results = results_of(item);
    for (const Result& result : results) {
      if (base_of(result.name) != "counts" || result.list) continue;
      const std::string member = result.name.substr(0, result.name.size() - std::string("counts").size());
      const std::string tag = member.empty() ? "histogram" : member.substr(0, member.size() - 1);
      const Member its(results, member);
      if (its.has("samples") && its.has("rows") && its.has("sum_squares")) {
        of_blocks.insert(member);
        write_blocks(writer, its, tag);
      } else if (its.has("low") && its.has("high")) {
        writer.histogram(tag, 0, of_log_histogram(its));
      } else if (its.has("edges") && its.numbers("edges").size() > 1) {
        writer.histogram(tag, 0, of_edges(its));
      }
    }
    for (Json& one : writer.written()) written.push_back(std::move(one));
  }
  for (const Statistics& statistics : statistics_of(entry)) {
    Writer writer(file, named(statistics.slot));
    std::string keys = keys_text(statistics.keys);
    if (!keys.empty()) keys = keys.substr(1) + "/";
    for (const Statistic& one : statistics.all) {
      if (one.single() && of_blocks.count(one.member()) == 0) writer.scalar(keys + one.name, 0, one.value());
    }
    for (Json& one : writer.written()) written.push_back(std::move(one));
  }
  return written;
}

}  // namespace torchtap::tools
