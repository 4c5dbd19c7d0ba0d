#pragma once

/// The list of samples that a record keeps.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::recorders::detail {

/// Kept samples in order. Small dense samples of one shape share buffers, so that a million of them cost
/// little more than their bytes. Not thread-safe.
class SampleList {
 public:
  std::int64_t size() const noexcept { return size_; }
  /// The bytes of memory that it takes, without what it shares with the model.
  std::int64_t bytes() const noexcept { return bytes_; }
  /// Keeps a copy of `sample`, which must not require gradients; an undefined one keeps its place.
  void append_copy(const at::Tensor& sample);
  /// Keeps `sample` itself. With `shared`, its memory is shared with the model, and in-place changes are
  /// detected.
  void append(const at::Tensor& sample, bool shared);
  void append(const SampleList& other);
  /// All samples in order; those in buffers are views of memory that is never written again. Throws
  /// `c10::ValueError` that begins with `what` if a shared one was changed in place since.
  std::vector<at::Tensor> tensors(const std::string& what) const;

 private:
  struct Run {
    at::Tensor buffer;      // [capacity, *sample] if packed, else the sample itself
    std::int64_t used = 0;  // samples in it
    std::int64_t version = 0;
    bool packed = false;
    bool shared = false;
  };

  void coalesce();
  void push(Run run);
  static std::int64_t bytes_of(const Run& run);

  std::vector<Run> runs_;
  std::int64_t size_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace torchtap::recorders::detail
