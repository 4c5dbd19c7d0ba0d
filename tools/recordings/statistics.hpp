#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recordings.hpp"

/// The results of reductions as numbers to show and compare. The names of results are interpreted only here.
namespace torchtap::tools {

/// The counts of a histogram. Doubles, so that counts can be added and divided.
struct Bins {
  at::Tensor counts;  ///< [rows, bins], one row per kept element of the reduction
  at::Tensor edges;   ///< [bins + 1]
  at::Tensor below;   ///< [rows], counts below the first edge
  at::Tensor above;   ///< [rows], counts above the last edge

  /// The sum of all rows.
  std::vector<double> total() const;
  std::vector<double> edge_list() const;
  /// Whether all bins have one width, as in a `Histogram`.
  bool even() const;
  /// One bin for each octave of each sign, as far as there were counts.
  Bins by_octave() const;
  /// For a drawing with a line for each bin: itself if its bins are even, or by octaves.
  Bins drawn() const;
};

/// "std" of "moments.std".
std::string base_of(const std::string& name);

/// One result: a number, several numbers, or a histogram.
struct Statistic {
  /// Including the member of a series: "moments.std", "abs_max", "histogram".
  std::string name;
  /// Secondary results of a histogram or a sketch, such as underflow or NaN.
  bool detail = false;
  /// Whole numbers, such as counts.
  bool whole = false;
  at::Tensor values;         ///< [elements], double; absolute values of complex numbers
  std::optional<Bins> bins;  ///< set for a histogram, which has no `values`

  std::int64_t elements = 0;
  std::int64_t dimensions = 0;  ///< of the result, before its values were put into a row
  std::int64_t zeros = 0, nan = 0, inf = 0;
  double low = 0, high = 0;  ///< the smallest and largest finite values; NaN if there are none
  std::optional<std::pair<std::int64_t, std::int64_t>> range;  ///< the same with all digits, of `whole` ones

  /// "std" of "moments.std".
  std::string base() const;
  /// "moments." of "moments.std".
  std::string member() const;
  bool single() const { return !bins.has_value() && elements == 1; }
  /// The only value; it may be NaN or infinite.
  double value() const;
  /// The largest finite absolute value; NaN if there are none.
  double peak() const;
};

/// A name and a key of it, for each `by` around a reduction.
using Keys = std::vector<std::pair<std::string, std::int64_t>>;
/// " labels=3"; "" if there are none.
std::string keys_text(const Keys& keys);

/// The results of one module, of one slot if all its tensors were recorded, or of one key.
struct Statistics {
  std::int64_t slot = -1;
  std::vector<Statistic> all;
  Keys keys;
  Keys left_out;  ///< how many rows had no key, for each of `keys` within the keys before it

  /// Null if there is none.
  const Statistic* find(const std::string& name) const;
  /// The first with this base.
  const Statistic* find_base(const std::string& base) const;
  /// The counterpart of `statistic`, which belongs to another module `of`: the one with the same name, or the
  /// one with the same base if each side has only one, as names differ inside a series.
  const Statistic* like(const Statistic& statistic, const Statistics& of) const;
  /// The result called `base` of the same member as `statistic`.
  const Statistic* beside(const Statistic& statistic, const std::string& base) const;
};

/// Whether an entry has results of a reduction rather than samples, judging by its reduction or, in files
/// written by Python, by results called "mean" and "variance", "counts" and "edges", or "counts", "low" and
/// "high".
bool has_statistics(const storage::RecordedEntry& entry);
/// Whether any entry has statistics.
bool has_statistics(const Layers& layers);

/// The results of an entry, one per slot and per key that has rows. A variance becomes a "std", counts and
/// their bins become a histogram, and quantiles one statistic per level ("q0.5"). Reads the entry's file;
/// returns nothing for an entry without samples.
std::vector<Statistics> statistics_of(const storage::RecordedEntry& entry);

/// Whether the name of a result is the number of a slot.
bool is_slot(const std::string& name);
/// The results of each recorded tensor with its slot, if all tensors of a module were recorded; else all of
/// them, with -1.
std::vector<std::pair<std::int64_t, core::Value>> slots_of(const core::Value& value);

/// The histogram called `name`, or the first one for "": the counts of all rows and the edges.
std::optional<Bins> bins_of(const std::vector<Result>& results, const std::string& name);

}  // namespace torchtap::tools
