#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "recordings.hpp"

/// Results too large for memory, and with too many tensors for a call of LibTorch for each.
namespace torchtap::tools {

/// The results of an entry as `results_of` gives them, but the samples of a spooled recording stay on disk,
/// as `Result::spooled`.
std::vector<Result> results_on_disk(const storage::RecordedEntry& entry);

/// Calls `visit` with all numbers of a result in tensors of at most some million elements: large tensors in
/// parts, so that a file that repeats one number needs no memory for it, and small ones of a dtype together.
void each_block(const Result& result, const std::function<void(const at::Tensor&)>& visit);

/// Reads the tensors of a result one after the other.
class TensorReader {
 public:
  explicit TensorReader(const Result& result);
  /// Null at the end. Valid until the next call.
  const at::Tensor* next();

 private:
  const Result& result_;
  std::size_t position_ = 0;
  storage::SampleRange::Iterator at_;
  bool begun_ = false;
};

}  // namespace torchtap::tools
