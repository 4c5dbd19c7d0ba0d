#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check/drift_check.hpp"
#include "module_pairs.hpp"
#include "recordings/statistics.hpp"

/// Measures how far the values of modules moved between two recordings of statistics.
namespace torchtap::tools {

/// The Wasserstein-1 distance between two histograms: the area between their distribution functions, in the
/// unit of the values. Values are assumed to be spread evenly over their bin; values outside the range count
/// at the outermost edge. `row` is a row of `Bins::counts`, or -1 for the sum of all rows. The edges may
/// differ. NaN if either histogram is empty.
double wasserstein(const Bins& a, const Bins& b, std::int64_t row = -1);

/// The change of a result that does not enter the distance by itself; for several numbers, the largest
/// change.
struct Change {
  std::string name;
  double a = 0;
  double b = 0;
  /// |a - b| / max(|a|, |b|), or the largest of these for several numbers. For skewness and kurtosis, whose
  /// scale is 1, the divisor is at least 1.
  double relative = 0;
  /// Whether the change is meaningful. False for results that depend on the number of samples or elements if
  /// these differ, and for counts outside the range of a histogram.
  bool meant = true;
};

/// One module, one slot of a module, or one key, in both recordings. For elementwise results, each value
/// belongs to the element that moved most.
struct Movement {
  Pair pair;
  std::int64_t slot = -1;
  Keys keys;
  /// "close", "different"; "drifted" if blocks decide; or the reason why the two cannot be compared.
  std::string status = "same";
  bool judged = false;  ///< by blocks, not by `distance`
  std::string detail;

  std::optional<double> shift;        ///< of the mean, in standard deviations of A
  std::optional<double> ratio;        ///< of the standard deviations, B / A
  std::optional<double> wasserstein;  ///< in standard deviations of A, or in the unit of the values
                                      ///< where these are unknown
  bool in_deviations = false;
  std::optional<double> zeros;  ///< change of the fraction of zeros
  std::vector<Change> others;

  /// The largest of |shift|, |ln ratio|, Wasserstein distance and |zeros|; if there is neither a shift nor a
  /// histogram, also of the relative changes. Infinity if the two cannot be compared.
  double distance = 0;

  bool agrees() const { return status == "same" || status == "close"; }
  /// The largest of the meaningful changes; null if there are none.
  const Change* largest() const;
};

/// The movement of all pairs, in order. Two modules agree if their `distance` is at most `tolerance`; modules
/// that `drift` has judged agree if they have not drifted, however large it is.
std::vector<Movement> movements(const std::vector<Pair>& pairs, double tolerance,
                                const DriftVerdict& drift = {});

}  // namespace torchtap::tools
