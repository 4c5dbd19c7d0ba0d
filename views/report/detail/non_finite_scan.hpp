#pragma once

// Looks through tensors for values that are not finite, as fast as memory is read.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// The result of one pass over a tensor.
struct Scan {
  bool known = false;  // false for a dtype or a kind of tensor that is not looked through
  bool nan = false, inf = false;

  bool finite() const noexcept { return !nan && !inf; }
};

/// Whether its values are scanned: it is a floating-point or complex tensor, and not nested.
bool is_looked_through(const at::Tensor& tensor);
/// Looks through such a tensor.
Scan scan(const at::Tensor& tensor);

/// Exact counts, for the few tensors that are not finite. All infinities are in `inf`.
NonFinite count_non_finite(const at::Tensor& tensor);
bool has_positive_infinity(const at::Tensor& tensor);

/// "float32 [2, 3], minimum -1, maximum 4, mean 0.5, 1 NaN", for people.
std::string statistics(const at::Tensor& tensor);

}  // namespace torchtap::views::report::detail
