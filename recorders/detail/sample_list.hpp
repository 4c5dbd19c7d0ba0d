#pragma once

/// The list of samples that a record keeps.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::recorders::detail {

/// Kept samples in order. Small dense samples share memory, one behind the other, whatever their shapes and
/// dtypes are, so that a million of them cost little more than their bytes. Not thread-safe.
class TORCHTAP_API SampleList {
 public:
  SampleList() = default;
  SampleList(SampleList&&) noexcept = default;
  SampleList& operator=(SampleList&&) noexcept = default;
  SampleList(const SampleList&) = delete;  // both would fill the same memory
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
  /// detected. An undefined one keeps its place.
  void append(const at::Tensor& sample, bool shared);
  void append(const SampleList& other);
  /// Removes the last sample, which must not have been read.
  void drop_last() noexcept;
  /// All samples in order; small ones are views of memory that is never written again. Throws
  /// `c10::ValueError` that begins with `what` if a shared sample was changed in place since.
  std::vector<at::Tensor> tensors(const std::string& what) const;

 private:
  /// What packed samples are like; undefined ones have `Undefined` for a dtype.
  struct Form {
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    std::uint16_t dimensions = 0;
    std::uint32_t sizes = 0;  // where they begin in `Block::sizes`
  };
  /// Packed samples of one form that follow each other.
  struct Stretch {
    std::uint16_t form = 0;
    std::uint16_t count = 0;
  };
  /// One tensor, or the memory of many samples.
  struct Block {
    at::Tensor tensor;  // undefined if packed
    bool shared = false;
    std::int64_t version = 0;

    at::Tensor memory;   // bytes; undefined if only undefined samples are packed
    bool plain = false;  // samples can be copied to it as bytes
    std::int64_t capacity = 0;
    std::int64_t used = 0;
    std::vector<Form> forms;
    std::vector<std::int64_t> sizes;
    std::vector<Stretch> stretches;

    at::IntArrayRef sizes_of(const Form& form) const;
    std::int64_t bytes_of(const Form& form) const;  // of one sample
    std::int64_t bytes() const;
    at::Tensor view(const Form& form, std::int64_t offset) const;
    template <class Each>
    std::int64_t each_stretch(const Each& each) const;
  };

  static Block block(const at::Tensor& like, std::int64_t capacity);
  static void move(const Block& from, std::int64_t offset, std::int64_t bytes, Block& to);
  bool takes(const at::Tensor& sample) const;
  std::uint16_t form(c10::ScalarType dtype, at::IntArrayRef sizes);
  void lengthen(c10::ScalarType dtype, at::IntArrayRef sizes, std::int64_t count);
  void pack(const at::Tensor& sample);
  void close();
  void coalesce();
  void push(Block block);

  std::vector<Block> blocks_;
  std::vector<std::uint16_t> order_;  // the forms of the last block, sorted
  std::int64_t alike_ = -1;           // bytes of the last sample; -1 if `append_alike` cannot follow it
  std::int64_t closed_bytes_ = 0;     // used in all blocks but the last
  std::int64_t size_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace torchtap::recorders::detail
