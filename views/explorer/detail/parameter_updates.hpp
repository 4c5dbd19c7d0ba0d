#pragma once

// By how much a step of the optimizer changes each parameter.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>

#include <torchtap/views/explorer/detail/run.hpp>

namespace torchtap::views::explorer::detail {

/// Compares weights before and after the optimizer's step. A copy is kept in between, of at most
/// `most_elements` of each: all of them, or as many at even distances, which give the ratio to a percent or
/// so. Parameters of one dimension are passed over: biases begin at zero, and may change by any factor. Any
/// thread may call any function.
class Updates {
 public:
  static constexpr std::int64_t most_elements = std::int64_t{1} << 16;

  /// Keeps the values at the end of the backward of a step.
  void keep(std::int32_t series, const at::Tensor& parameter, std::int64_t step);
  /// Reports |after - before| / |before| of each kept parameter to the run. Leaves out results that are not
  /// finite; reports nothing if no parameter has changed, because there was no step then. Then drops the
  /// copies.
  void compare(Run& run);
  bool empty() const;

 private:
  struct Before {
    at::Tensor parameter, values;
    std::int64_t step;
  };
  mutable std::mutex mutex_;
  std::map<std::int32_t, Before> kept_;
};

}  // namespace torchtap::views::explorer::detail
