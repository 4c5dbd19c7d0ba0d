#pragma once

/// Summarises the dtypes and shapes of several tensors, for manifests.

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::storage::detail {

/// The dtype and shape that tensors have in common. "" and [] if there are no tensors.
struct ShapeSummary {
  std::string dtype;                ///< "mixed" where it differs
  std::vector<std::int64_t> shape;  ///< -1 in dimensions that differ; [] if ragged
  bool ragged = false;              ///< their number of dimensions differs

  /// Adds one more tensor.
  void add(c10::ScalarType type, c10::IntArrayRef sizes);
  /// Adds all tensors of another summary.
  void add(const ShapeSummary& other);

  friend bool operator==(const ShapeSummary& a, const ShapeSummary& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.ragged == b.ragged;
  }
  friend bool operator!=(const ShapeSummary& a, const ShapeSummary& b) { return !(a == b); }

 private:
  void add(const std::string& other, c10::IntArrayRef sizes);
};

/// A shape for messages, "[8, 3, 224, 224]", shortened because a file may claim any number of dimensions.
std::string shown(c10::IntArrayRef sizes);

}  // namespace torchtap::storage::detail
