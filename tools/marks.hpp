#pragma once

#include <string>
#include <vector>

#include "statistics.hpp"

/// What looks wrong in a recording of statistics.
namespace torchtap::tools {

/// The words that stand in tables and documents, with what they mean; in the order in which they are given.
struct MarkMeaning {
  const char* mark;
  const char* meaning;
};
const std::vector<MarkMeaning>& mark_meanings();

/// Whether a row gets "non-finite", see below.
bool is_non_finite(const Statistics& row);

struct Marked {
  const Statistics* statistics;
  std::string type;  ///< of the module
};

/// The marks of each of `rows`, which are in the order of the recording:
///
/// - "zero": every value was zero, by the extrema, the norm, the mean or the count of zeros;
/// - "non-finite": a result is NaN or infinite, or NaN or infinities were counted. The standard deviation of
///   one value, and skewness and kurtosis of a constant, are NaN by definition and not marked;
/// - "100x": a standard deviation, a norm, or the largest absolute value is at least 100 times the geometric
///   mean of its neighbours. These are the nearest modules before and after that are of the same type and
///   have the same result and not zero there; where no module is of its type, of any type. (A BatchNorm
///   repeats what is wrong with its convolution, so the next module says little.)
std::vector<std::vector<std::string>> marks_of(const std::vector<Marked>& rows);

}  // namespace torchtap::tools
