#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pairs.hpp"
#include "statistics.hpp"

/// How far the values of modules moved between two recordings of statistics.
namespace torchtap::tools {

/// The Wasserstein-1 distance of what two histograms counted: the area between their distribution functions,
/// in the unit of the values. Values are taken to be spread evenly over their bin; what lay outside counts at
/// the outermost edge. `row` is one of `Bins::counts`, or -1 for all together. The edges may differ. NaN if
/// one of them counted nothing.
double wasserstein(const Bins& a, const Bins& b, std::int64_t row = -1);

/// A result that is not part of a distribution's distance by itself; of several numbers, those that differ
/// most.
struct Change {
  std::string name;
  double a = 0;
  double b = 0;
  /// |a - b| / the larger of |a| and |b|, of several numbers the largest of all; of skewness and kurtosis,
  /// whose scale is 1, by at least 1.
  double relative = 0;
  /// False for what depends on the number of samples or elements, where these differ, and for what lay
  /// outside of a histogram.
  bool meant = true;
};

/// One module, or one slot of a module, in both recordings. Of elementwise results, each of these is of the
/// element that moved most.
struct Drift {
  Pair pair;
  std::int64_t slot = -1;
  std::string status = "same";  ///< "close", "different", or why the two cannot be compared
  std::string detail;

  std::optional<double> shift;        ///< of the mean, in standard deviations of A
  std::optional<double> ratio;        ///< of the standard deviations, B / A
  std::optional<double> wasserstein;  ///< in standard deviations of A, or, where that is not known, in the
                                      ///< unit of the values
  bool in_deviations = false;
  std::optional<double> zeros;  ///< of the share of zeros
  std::vector<Change> others;

  /// The largest of |shift|, |ln ratio|, Wasserstein distance and |zeros|; where there is neither a shift nor
  /// a histogram, also of the relative changes. Infinity for what cannot be compared.
  double distance = 0;

  bool agrees() const { return status == "same" || status == "close"; }
  /// Of those that are meant; null if there are none.
  const Change* largest() const;
};

/// Of all pairs, in their order. Where `distance` is at most `tolerance`, two modules agree.
std::vector<Drift> drifts(const std::vector<Pair>& pairs, double tolerance);

}  // namespace torchtap::tools
