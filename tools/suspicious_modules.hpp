#pragma once

#include <string>
#include <vector>

#include "statistics.hpp"

/// Marks suspicious modules in a recording of statistics.
namespace torchtap::tools {

/// A mark as it appears in tables and documents, and its meaning. Marks are listed in this order.
struct MarkMeaning {
  const char* mark;
  const char* meaning;
};
const std::vector<MarkMeaning>& mark_meanings();

/// Whether a row gets "non-finite", see `marks_of`.
bool is_non_finite(const Statistics& row);

struct Marked {
  const Statistics* statistics;
  std::string type;  ///< type of the module
};

/// The marks of each of `rows`, which must be in the order of the recording:
///
/// - "dead": at least 99 % of the values were zero, according to the count of zeros, or every value,
/// according
///   to the extrema, the norm or the mean;
/// - "non-finite": a result is NaN or infinite, or NaN or infinities were counted. The standard deviation of
///   one value and the skewness and kurtosis of a constant are NaN by definition and not marked;
/// - "100x": a standard deviation, a norm, or the largest absolute value is at least 100 times the geometric
///   mean of its neighbours: the nearest modules before and after of the same type that have the same result
///   with a nonzero value; of any type if no module has that type. (A BatchNorm repeats what is wrong with
///   its convolution, so the adjacent module says little.)
std::vector<std::vector<std::string>> marks_of(const std::vector<Marked>& rows);

}  // namespace torchtap::tools
