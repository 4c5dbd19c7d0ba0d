#include "suspicious_modules.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>

#include <torchtap/views/watch/verdict.hpp>

namespace torchtap::tools {
namespace {

constexpr double kTimes = 100;

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
}

/// Whether it counts values rather than being computed from them.
bool counts(const Statistic& statistic) {
  return statistic.detail ||
         is_one_of(statistic.base(), {"rows", "elements", "nan", "inf", "zeros", "indices"});
}

/// Whether it is 0 / 0 for a single value or a constant.
bool may_be_nan(const Statistic& statistic) {
  return is_one_of(statistic.base(), {"std", "skewness", "kurtosis", "covariance", "correlation"});
}

/// Judges by the counts of zeros, or, without them, by whether all else that was computed is zero.
bool is_dead(const Statistics& row) {
  bool shown = false;
  for (const auto& one : row.all) {
    if (one.bins.has_value() || one.elements == 0) continue;
    const std::string base = one.base();
    if (base == "zeros") {
      const Statistic* elements = row.beside(one, "elements");
      const double all = elements == nullptr ? 0 : elements->values.sum().item<double>();
      if (all > 0) return one.values.sum().item<double>() >= views::watch::dead_share * all;
    }
    if (counts(one) || is_one_of(base, {"skewness", "kurtosis", "correlation"})) continue;
    if (one.zeros != one.elements) return false;
    // The minimum or maximum alone is zero after any ReLU.
    if (base == "min" || base == "max") {
      shown = shown || row.find_base(base == "min" ? "max" : "min") != nullptr;
    } else {
      shown = shown || is_one_of(base, {"abs_max", "norm", "mean", "sum", "first", "last", "ema"});
    }
  }
  return shown;
}

/// The results that measure the magnitude of a module's values, by name.
std::map<std::string, double> sizes(const Statistics& row) {
  std::map<std::string, double> found;
  const auto add = [&](const std::string& name, double size) {
    if (std::isfinite(size) && size > 0) found[name] = size;
  };
  for (const auto& one : row.all) {
    if (one.bins.has_value() || counts(one)) continue;
    const std::string base = one.base();
    if (is_one_of(base, {"std", "abs_max", "norm"})) add(one.name, one.peak());
    if (is_one_of(base, {"mean", "first", "last", "ema"}) && one.elements > 1) add(one.name, one.peak());
    if (base == "max") {
      const Statistic* least = row.find_base("min");
      if (least != nullptr) add(one.name, std::max(one.peak(), least->peak()));
    }
  }
  return found;
}

}  // namespace

bool is_non_finite(const Statistics& row) {
  return std::any_of(row.all.begin(), row.all.end(), [](const Statistic& one) {
    if (one.bins.has_value()) return false;
    if (is_one_of(one.base(), {"nan", "inf", "omitted"}) && one.high > 0) return true;
    return one.inf > 0 || (one.nan > 0 && !may_be_nan(one));
  });
}

const std::vector<MarkMeaning>& mark_meanings() {
  static const std::vector<MarkMeaning> all{
      {"dead", "at least 99 % of the values were zero; every value, where zeros were not counted"},
      {"non-finite", "NaN or infinities among the values or in a result"},
      {"100x",
       "deviation, norm or largest value at least 100 times the geometric mean of the modules of that type "
       "before and after"},
  };
  return all;
}

std::vector<std::vector<std::string>> marks_of(const std::vector<Marked>& rows) {
  std::vector<std::map<std::string, double>> of_rows;
  for (const auto& row : rows) of_rows.push_back(sizes(*row.statistics));

  const auto neighbour = [&](std::size_t of, int step, const std::string& name, bool same_type) {
    std::optional<double> found;
    const auto count = static_cast<std::int64_t>(rows.size());
    for (auto i = static_cast<std::int64_t>(of) + step; i >= 0 && i < count && !found.has_value();
         i += step) {
      const auto at = static_cast<std::size_t>(i);
      if (rows[at].statistics->slot != rows[of].statistics->slot ||
          rows[at].statistics->keys != rows[of].statistics->keys)
        continue;
      if (same_type && rows[at].type != rows[of].type) continue;
      if (const auto size = of_rows[at].find(name); size != of_rows[at].end()) found = size->second;
    }
    return found;
  };
  const auto sticks_out = [&](std::size_t i) {
    return std::any_of(of_rows[i].begin(), of_rows[i].end(), [&, i](const auto& size) {
      for (const bool same_type : {true, false}) {
        const auto before = neighbour(i, -1, size.first, same_type);
        const auto after = neighbour(i, 1, size.first, same_type);
        if (!before.has_value() && !after.has_value()) continue;
        const double one = before.value_or(after.value_or(0));
        const double other = after.value_or(one);
        return size.second >= kTimes * std::sqrt(one) * std::sqrt(other);
      }
      return false;
    });
  };
  std::vector<std::vector<std::string>> marks(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (is_dead(*rows[i].statistics)) marks[i].push_back("dead");
    if (is_non_finite(*rows[i].statistics)) marks[i].push_back("non-finite");
    if (sticks_out(i)) marks[i].push_back("100x");
  }
  return marks;
}

}  // namespace torchtap::tools
