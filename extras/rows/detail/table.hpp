#pragma once

/// Defines `Table`, the samples of an entry as rows one behind the other, mapped from its shards.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/storage/recording.hpp>

namespace torchtap::rows::detail {

/// See above. Rows are numbered as they lie in the files.
class Table {
 public:
  Table() = default;
  /// Of an entry of a recording that was loaded with `LoadOptions::mmap`. With `first_dimension`, a sample is
  /// not a row: its first dimension is rows. Throws `c10::ValueError` unless all rows are alike.
  Table(const storage::RecordedEntry& entry, bool first_dimension);

  std::int64_t size() const noexcept { return begins_.back(); }
  at::ScalarType dtype() const noexcept { return dtype_; }
  at::IntArrayRef sizes() const noexcept { return sizes_; }
  /// The bytes of a row.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Rows that lie in one shard, as a view; undefined if they do not.
  at::Tensor view(std::int64_t begin, std::int64_t end) const;
  /// Copies rows to `to`.
  void copy(std::int64_t begin, std::int64_t end, char* to) const;
  /// The first byte of a row.
  const char* at(std::int64_t row) const;
  /// How many rows each sample has, with `first_dimension`.
  const std::vector<std::int64_t>& of_samples() const noexcept { return of_samples_; }

 private:
  std::size_t shard_of(std::int64_t row) const;

  std::vector<at::Tensor> shards_;       // [n, …], none of them empty
  std::vector<std::int64_t> begins_{0};  // the first row of each, and the number of all
  std::vector<std::int64_t> of_samples_;
  at::ScalarType dtype_ = at::kFloat;
  std::vector<std::int64_t> sizes_;
  std::size_t bytes_ = 0;
};

}  // namespace torchtap::rows::detail
