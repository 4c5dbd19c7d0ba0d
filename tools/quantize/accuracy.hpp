#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

/// Measures how often a classifier is right.
namespace torchtap::tools {

/// The classes of each image, the most likely one first: int64 `[images, classes]`. `result` is a model's
/// output: scores `[images, classes]`, or a tuple, list or dict that begins with them. Among equal scores the
/// lower class comes first, as in `argmax`, and NaN comes before numbers. Throws `c10::ValueError` for
/// another result.
at::Tensor ranking_of(const c10::IValue& result);

/// The right answers so far.
struct Accuracy {
  std::int64_t images = 0;
  std::int64_t classes = 0;
  std::int64_t first = 0;       ///< images whose label comes first
  std::int64_t among_five = 0;  ///< images whose label is among the first five

  /// Throws `c10::ValueError` if `labels` is not one whole number from 0 to `classes - 1` for each image.
  void add(const at::Tensor& ranking, const at::Tensor& labels);
  double share(std::int64_t count) const { return static_cast<double>(count) / static_cast<double>(images); }
};

}  // namespace torchtap::tools
