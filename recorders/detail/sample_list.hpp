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
  SampleList() = default;
  SampleList(SampleList&&) noexcept = default;
  SampleList& operator=(SampleList&&) noexcept = default;
  SampleList(const SampleList&) = delete;  // both would fill the same buffer
  SampleList& operator=(const SampleList&) = delete;

  std::int64_t size() const noexcept { return size_; }
  /// Its bytes of memory, without memory shared with the model.
  std::int64_t bytes() const noexcept { return bytes_; }
  /// Keeps a copy of `sample` if it is a plain CPU tensor of the shape and dtype of the last one and there is
  /// room behind that. Otherwise does nothing and returns false. Allocates nothing, leaves `bytes` as it is,
  /// and works alike in all modes of the thread.
  bool append_alike(const at::Tensor& sample);
  /// Keeps a copy of `sample`, without its graph; an undefined one keeps its place.
  void append_copy(const at::Tensor& sample);
  /// Keeps `sample` itself. With `shared`, its memory is shared with the model, and in-place changes are
  /// detected.
  void append(const at::Tensor& sample, bool shared);
  void append(const SampleList& other);
  /// Removes the last sample, which must not have been read.
  void drop_last() noexcept;
  /// All samples in order; samples in buffers are views of memory that is never written again. Throws
  /// `c10::ValueError` that begins with `what` if a shared sample was changed in place since.
  std::vector<at::Tensor> tensors(const std::string& what) const;

 private:
  struct Run {
    at::Tensor buffer;          // [capacity, *sample] if packed, else the sample itself
    std::int64_t used = 0;      // samples in it
    std::int64_t capacity = 0;  // and how many there may be
    bool packed = false;
    bool plain = false;    // packed, and samples can be copied as bytes,
    char* data = nullptr;  // to here,
    std::int64_t row_bytes = 0;
    bool shared = false;
    std::int64_t version = 0;
  };

  void coalesce();
  void push(Run run);
  static Run packed(const at::Tensor& sample, std::int64_t capacity);
  static void copy_bytes(Run& run, const char* from, std::int64_t rows);
  static void copy_sample(Run& run, const at::Tensor& sample);
  static bool fits(const Run& run, const at::Tensor& sample);
  static std::int64_t bytes_of(const Run& run);

  std::vector<Run> runs_;
  std::int64_t size_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace torchtap::recorders::detail
