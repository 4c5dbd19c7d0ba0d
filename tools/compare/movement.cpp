#include "movement.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "recordings/recorded_facts.hpp"
#include "terminal/progress.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

/// The distribution function of a histogram, linear between edges.
class Distribution {
 public:
  Distribution(const Bins& bins, std::int64_t row) : edges_(bins.edge_list()) {
    const auto of = [&](const at::Tensor& tensor) { return row < 0 ? tensor.sum(0) : tensor.select(0, row); };
    const at::Tensor counts = of(bins.counts).contiguous();
    const double* data = counts.data_ptr<double>();
    double sum = of(bins.below).item<double>();
    for (std::int64_t i = 0; i <= counts.numel(); ++i) {
      upto_.push_back(sum);
      if (i < counts.numel()) sum += data[i];
    }
    total_ = sum + of(bins.above).item<double>();
  }

  double total() const { return total_; }
  const std::vector<double>& edges() const { return edges_; }
  /// The values at both ends of an interval without edges inside. The function jumps at the outermost edges.
  std::pair<double, double> over(double from, double to) const {
    if (to <= edges_.front()) return {0, 0};
    if (from >= edges_.back()) return {1, 1};
    return {at(from), at(to)};
  }

 private:
  double at(double x) const {
    const auto next = std::upper_bound(edges_.begin(), edges_.end(), x);
    if (next == edges_.begin()) return upto_.front() / total_;
    if (next == edges_.end()) return upto_.back() / total_;
    const auto i = static_cast<std::size_t>(next - edges_.begin()) - 1;
    const double part = (x - edges_[i]) / (edges_[i + 1] - edges_[i]);
    return (upto_[i] + part * (upto_[i + 1] - upto_[i])) / total_;
  }

  std::vector<double> edges_;
  std::vector<double> upto_;  // counts below each edge
  double total_ = 0;
};

/// The area under |d| over an interval of `length` in which d goes linearly from `first` to `last`.
double area(double first, double last, double length) {
  if (first * last >= 0) return std::abs(first + last) / 2 * length;
  return (first * first + last * last) / (2 * (std::abs(first) + std::abs(last))) * length;
}

/// The width of the bin that a value lies in, on average.
double bin_width(const Bins& bins) {
  const auto edges = bins.edge_list();
  const auto counts = bins.total();
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (bins.even() || total == 0) return (edges.back() - edges.front()) / static_cast<double>(counts.size());
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) sum += counts[i] * (edges[i + 1] - edges[i]);
  return sum / total;
}

bool one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
}

/// Whether it grows with the number of samples, so that it is meaningless if these differ.
bool is_total(const Statistic& one) {
  return one_of(one.base(), {"sum", "norm", "rows", "elements", "zeros", "nan", "inf"});
}

const double* numbers(const Statistic& one) {
  return one.values.data_ptr<double>();
}

/// Keeps whichever of `best` and `next` has the larger size.
void keep(std::optional<double>& best, double next, double size, double& largest) {
  if (std::isnan(next) || (best.has_value() && size <= largest)) return;
  best = next;
  largest = size;
}

/// The standard deviation that belongs to `one`: of the same member, or else the only one.
const Statistic* deviation_of(const Statistics& statistics, const Statistic& one) {
  const Statistic* found = statistics.beside(one, "std");
  if (found == nullptr) found = statistics.find_base("std");
  return found == nullptr || found->bins.has_value() || found->elements == 0 ? nullptr : found;
}

/// Compares two modules, statistic by statistic.
class Comparer {
 public:
  Comparer(const Statistics& a, const Statistics& b, bool same_samples, Movement& movement)
      : a_(a), b_(b), same_samples_(same_samples), movement_(movement) {}

  void run() {
    bool common = false;
    std::string only_a, only_b;
    for (const auto& one : a_.all) {
      const Statistic* other = b_.like(one, a_);
      if (other == nullptr || other->bins.has_value() != one.bins.has_value()) {
        only_a += (only_a.empty() ? "only in A: " : ", ") + one.name;
        continue;
      }
      common = true;
      compare(one, *other);
    }
    for (const auto& other : b_.all) {
      if (a_.like(other, b_) == nullptr) only_b += (only_b.empty() ? "only in B: " : ", ") + other.name;
    }
    note(only_a);
    note(only_b);
    if (!common) return fail("not the same results");
    const bool wrong_a = has_nonfinite(a_);
    const bool wrong_b = has_nonfinite(b_);
    if (wrong_a != wrong_b) fail(wrong_a ? "nonfinite in A" : "nonfinite in B");
    if (!movement_.shift.has_value() && !movement_.wasserstein.has_value()) raise(relative_);
  }

 private:
  void fail(const std::string& what) {
    if (!movement_.agrees()) return;
    movement_.status = what;
    movement_.distance = INFINITY;
  }
  void note(const std::string& what) {
    movement_.detail += (movement_.detail.empty() || what.empty() ? "" : "; ") + what;
  }
  void raise(double to) { movement_.distance = std::max(movement_.distance, to); }

  void compare(const Statistic& one, const Statistic& other) {
    if (one.bins.has_value()) return compare_histograms(one, *other.bins);
    if (one.elements != other.elements) {
      note(c10::str(one.name, " has ", one.elements, " elements in A and ", other.elements, " in B"));
      return fail("shapes differ");
    }
    const std::string base = one.base();
    if (base == "std") return compare_deviations(one, other);
    if (base == "mean" && shift(one, other)) return;
    if (base == "zeros" && share(one, other)) return;
    if (base == "indices") return;
    change(one, other);
  }

  void compare_deviations(const Statistic& one, const Statistic& other) {
    double largest = 0;
    for (std::int64_t i = 0; i < one.elements; ++i) {
      const double x = numbers(one)[i];
      const double y = numbers(other)[i];
      const double ratio = x == y ? 1 : y / x;
      keep(movement_.ratio, ratio, std::abs(std::log(ratio)), largest);
    }
    raise(largest);
  }

  bool shift(const Statistic& one, const Statistic& other) {
    const Statistic* deviation = a_.beside(one, "std");
    if (deviation == nullptr || deviation->elements != one.elements) return false;
    double largest = 0;
    std::optional<double> found;
    for (std::int64_t i = 0; i < one.elements; ++i) {
      const double x = numbers(one)[i];
      const double y = numbers(other)[i];
      const double moved = x == y ? 0 : (y - x) / numbers(*deviation)[i];
      keep(found, moved, std::abs(moved), largest);
    }
    if (!found.has_value()) return false;
    movement_.shift = found;
    raise(largest);
    return true;
  }

  /// Compares the fraction of zeros.
  bool share(const Statistic& one, const Statistic& other) {
    const Statistic* all = a_.beside(one, "elements");
    const Statistic* all_other = b_.beside(other, "elements");
    if (!one.single() || all == nullptr || all_other == nullptr || !(all->value() > 0) ||
        !(all_other->value() > 0))
      return false;
    movement_.zeros = other.value() / all_other->value() - one.value() / all->value();
    raise(std::abs(*movement_.zeros));
    return true;
  }

  void compare_histograms(const Statistic& one, const Bins& other) {
    const Bins& bins = *one.bins;
    const Statistic* deviation = deviation_of(a_, one);
    const std::int64_t rows = bins.counts.size(0);
    const bool by_row = rows > 1 && rows == other.counts.size(0) &&
                        (deviation == nullptr || deviation->elements == 1 || deviation->elements == rows);
    if (!by_row && deviation != nullptr && deviation->elements != 1) deviation = nullptr;
    const bool same_edges = bins.edge_list() == other.edge_list();
    const double width = bin_width(bins);
    for (std::int64_t row = by_row ? 0 : -1; row < (by_row ? rows : 0); ++row) {
      const double distance = wasserstein(bins, other, row);
      if (std::isnan(distance)) continue;
      double unit = 1;
      if (deviation != nullptr) unit = numbers(*deviation)[deviation->elements == 1 ? 0 : row];
      if (std::isnan(unit)) continue;
      const double moved = distance == 0 ? 0 : distance / unit;
      if (!movement_.wasserstein.has_value() || moved > *movement_.wasserstein) movement_.wasserstein = moved;
      movement_.in_deviations = deviation != nullptr;
      // A distance below the resolution of the bins does not count: counts jump as values cross an edge.
      const bool fine =
          same_edges ? deviation == nullptr || unit >= width : distance > (width + bin_width(other)) / 2;
      if (fine) raise(moved);
    }
  }

  void change(const Statistic& one, const Statistic& other) {
    Change change{one.name, 0, 0, 0, true};
    double largest = -1;
    for (std::int64_t i = 0; i < one.elements; ++i) {
      const double distance = std::abs(numbers(one)[i] - numbers(other)[i]);
      if (!std::isfinite(distance) || distance <= largest) continue;
      largest = distance;
      change.a = numbers(one)[i];
      change.b = numbers(other)[i];
    }
    if (largest < 0) return;
    const bool unitless = one_of(one.base(), {"skewness", "kurtosis"});
    if (largest > 0) change.relative = largest / std::max({one.peak(), other.peak(), unitless ? 1.0 : 0.0});
    change.meant =
        !one.detail && !one_of(one.base(), {"rows", "elements"}) && (!is_total(one) || same_samples_);
    if (change.meant) relative_ = std::max(relative_, change.relative);
    movement_.others.push_back(std::move(change));
  }

  const Statistics& a_;
  const Statistics& b_;
  const bool same_samples_;
  Movement& movement_;
  double relative_ = 0;
};

void compare(const Statistics& a, const Statistics& b, double tolerance, Movement& movement) {
  const bool same_samples = movement.pair.a->entry.samples() == movement.pair.b->entry.samples();
  Comparer(a, b, same_samples, movement).run();
  if (movement.status == "same" && movement.distance > 0) {
    movement.status = movement.distance <= tolerance ? "close" : "different";
  }
}

/// Blocks decide if they judged the tensor; values that are not finite on one side alone remain a difference.
void judge(const DriftVerdict& drift, std::int64_t slot, Movement& movement) {
  const auto& b = *movement.pair.b;
  slot = std::max<std::int64_t>(slot, 0);
  movement.judged = drift.judged.count({b.entry.path(), b.entry.kind(), slot}) != 0;
  if (!movement.judged) return;
  if (movement.status == "different") movement.status = "close";
  for (const rules::Finding& finding : drift.findings) {
    if (finding.path != b.entry.path() || finding.slot != slot ||
        finding.tensor != tensor_of(b.entry.kind()) || !movement.agrees())
      continue;
    movement.status = "drifted";
    movement.detail = finding.sentence;
  }
}

Movement failed(const Pair& pair, const std::string& status, const std::string& detail = "") {
  Movement movement;
  movement.pair = pair;
  movement.status = status;
  movement.detail = detail;
  movement.distance = INFINITY;
  return movement;
}

}  // namespace

double wasserstein(const Bins& a, const Bins& b, std::int64_t row) {
  const Distribution one(a, row);
  const Distribution other(b, row);
  if (!(one.total() > 0) || !(other.total() > 0)) return NAN;
  std::vector<double> edges(one.edges());
  edges.insert(edges.end(), other.edges().begin(), other.edges().end());
  std::sort(edges.begin(), edges.end());
  double sum = 0;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    if (edges[i] == edges[i + 1]) continue;
    const auto [x0, x1] = one.over(edges[i], edges[i + 1]);
    const auto [y0, y1] = other.over(edges[i], edges[i + 1]);
    sum += area(x0 - y0, x1 - y1, edges[i + 1] - edges[i]);
  }
  return sum;
}

const Change* Movement::largest() const {
  const auto found =
      std::max_element(others.begin(), others.end(), [](const Change& one, const Change& other) {
        return one.meant != other.meant ? other.meant : one.relative < other.relative;
      });
  return found == others.end() || !found->meant ? nullptr : &*found;
}

std::vector<Movement> movements(const std::vector<Pair>& pairs, double tolerance, const DriftVerdict& drift) {
  std::vector<Movement> all;
  Progress progress("comparing", static_cast<std::int64_t>(pairs.size()));
  for (const auto& pair : pairs) {
    progress.advance();
    if (!pair.ran()) {
      all.emplace_back();
      all.back().pair = pair;
      all.back().detail = "no samples in both";
      continue;
    }
    if (pair.a == nullptr || pair.b == nullptr) {
      all.push_back(failed(pair, pair.a == nullptr ? "missing in A" : "missing in B"));
      continue;
    }
    const auto& kind_a = pair.a->entry.kind();
    const auto& kind_b = pair.b->entry.kind();
    if (!kind_a.empty() && !kind_b.empty() && kind_a != kind_b) {
      all.push_back(failed(pair, "not of the same kind", kind_a + " and " + kind_b));
      continue;
    }
    const auto a = statistics_of(pair.a->entry);
    const auto b = statistics_of(pair.b->entry);
    if (a.empty() != b.empty()) {
      all.push_back(failed(pair, a.empty() ? "no samples in A" : "no samples in B"));
      continue;
    }
    const bool keyed = !a.empty() && !(a.front().keys.empty() && b.front().keys.empty());
    if (a.size() != b.size() && !keyed) {
      all.push_back(
          failed(pair, "tensors differ in number", c10::str(a.size(), " in A and ", b.size(), " in B")));
      continue;
    }
    const auto add = [&](const Statistics& of, Movement movement) {
      movement.slot = of.slot;
      movement.keys = of.keys;
      all.push_back(std::move(movement));
    };
    const auto same = [](const std::vector<Statistics>& others, const Statistics& of) {
      return std::find_if(others.begin(), others.end(), [&](const Statistics& other) {
        return other.slot == of.slot && other.keys == of.keys;
      });
    };
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto other = keyed ? same(b, a[i]) : b.begin() + static_cast<std::ptrdiff_t>(i);
      Movement movement;
      movement.pair = pair;
      if (other != b.end()) compare(a[i], *other, tolerance, movement);
      if (other != b.end()) judge(drift, a[i].slot, movement);
      add(a[i], other == b.end() ? failed(pair, "missing in B") : std::move(movement));
    }
    for (const Statistics& one : b) {
      if (keyed && same(a, one) == a.end()) add(one, failed(pair, "missing in A"));
    }
  }
  return all;
}

}  // namespace torchtap::tools
