#pragma once

/// The values of a tensor over time, as a heat map that grows.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "colours.hpp"
#include "image.hpp"

namespace torchtap::tools::pictures {

/// A histogram for each tensor, in its own column: time goes to the right, values upwards; frequent values
/// are bright. If there are more columns than it keeps, pairs of them become one, so memory is bounded.
class HistogramOverTime {
 public:
  void add(const at::Tensor& values);
  /// The columns so far fill the width. NaN is marked at the top, an infinity at the bottom of its column.
  Image draw(const Range& range, std::size_t width, std::size_t height) const;

 private:
  static constexpr std::size_t kBins = 256, kMostColumns = 1024;
  struct Column {
    double low = 0, high = 0;  // of the bins
    std::vector<float> bins;   // shares of the finite values
    bool nan = false, infinite = false;
  };
  static Column merged(const Column& a, const Column& b);
  static float share_between(const Column& column, double low, double high);

  std::vector<Column> columns_;
  std::size_t each_ = 1;     // tensors in a column
  std::size_t in_last_ = 0;  // tensors in the last column
};

}  // namespace torchtap::tools::pictures
