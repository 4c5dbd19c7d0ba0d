#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recordings.hpp"

/// What reductions made of the samples of a module, as numbers that can be shown and compared. This is the
/// one place that knows what their results are called.
namespace torchtap::tools {

/// What a histogram counted. Doubles, so that counts can be added and divided.
struct Bins {
  at::Tensor counts;  ///< [rows, bins], a row for each element that the reduction kept
  at::Tensor edges;   ///< [bins + 1]
  at::Tensor below;   ///< [rows], what lay below the first edge
  at::Tensor above;   ///< [rows]

  /// Of all rows together.
  std::vector<double> total() const;
  std::vector<double> edge_list() const;
};

/// "std" of "moments.std".
std::string base_of(const std::string& name);

/// One result: a number, several numbers, or a histogram.
struct Statistic {
  /// With the member of a series that it is of: "moments.std", "abs_max", "histogram".
  std::string name;
  /// Of a histogram or a sketch, beside what it is there for: its underflow, its NaN.
  bool detail = false;
  /// Whole numbers, as counts are.
  bool whole = false;
  at::Tensor values;         ///< [elements], doubles; of complex numbers the absolute values
  std::optional<Bins> bins;  ///< there are no `values` then

  std::int64_t elements = 0;
  std::int64_t zeros = 0, nan = 0, inf = 0;
  double low = 0, high = 0;  ///< the least and the largest that are finite; NaN if there are none

  /// "std" of "moments.std".
  std::string base() const;
  /// "moments." of "moments.std".
  std::string member() const;
  bool single() const { return !bins.has_value() && elements == 1; }
  /// Of a single one, NaN and infinities included.
  double value() const;
  /// The largest absolute value that is finite; NaN if there are none.
  double peak() const;
};

/// The results of one module, or, where all of its tensors were recorded, of one of these.
struct Statistics {
  std::int64_t slot = -1;
  std::vector<Statistic> all;

  /// Null if there is none.
  const Statistic* find(const std::string& name) const;
  /// The first with this base.
  const Statistic* find_base(const std::string& base) const;
  /// The one that means what `statistic` does among those `of` another module: of its name, or, as a
  /// reduction is called otherwise in a series, of its base, where each side has but one.
  const Statistic* like(const Statistic& statistic, const Statistics& of) const;
  /// The one called `base` that is of the same member as `statistic`.
  const Statistic* beside(const Statistic& statistic, const std::string& base) const;
};

/// Whether an entry has results of a reduction rather than samples, as far as it says so: by its reduction,
/// or, in files of Python programs, by results called "mean" and "variance", or "counts" and "edges".
bool has_statistics(const storage::RecordedEntry& entry);
/// Whether any entry has.
bool has_statistics(const Layers& layers);

/// The results of an entry, one for each slot. A variance becomes a "std", counts and edges a histogram, and
/// quantiles one statistic for each level ("q0.5"). Reads the entry's file; nothing for an entry without
/// samples.
std::vector<Statistics> statistics_of(const storage::RecordedEntry& entry);

/// The histogram called `name` among results, or the first with ""; counts of all rows and the edges.
std::optional<Bins> bins_of(const std::vector<Result>& results, const std::string& name);

}  // namespace torchtap::tools
