#pragma once

/// Reads the rows of a module in a dump, with the calls that they are of and what was kept beside them.

#include <ATen/core/Tensor.h>
#include <range/v3/range_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/rows/texts.hpp>
#include <torchtap/storage/recording.hpp>

namespace torchtap::rows {

/// Where a row is from.
struct Where {
  std::int64_t run = 0;      ///< a number of each time that a recorder opened the dump
  std::int64_t forward = 0;  ///< of the run, from 0
  std::int64_t call = 0;     ///< of the module in the forward, from 0
  std::int64_t place = 0;  ///< in the call, before the mask: b * T + t for `rows({0, 1})` of `[B, T, C]`; -1
                           ///< if it is not on the disk yet, or a crash has cut it off
};

/// The rows of one module, as a list of tensors that are mapped from files and not read:
///
///     rows::Rows rows = storage::load("dump").at("layer2").rows();
///     at::Tensor x = rows.gather(chosen), y = rows.beside("label", chosen);
///
/// Of a recording without `RecorderOptions::rows`, the rows are those of the first dimension of each sample,
/// and the forward is the number of the sample. While a dump is written, these are the rows of its complete
/// shards. Copies are cheap and read the same files, also from several threads. A view of range-v3 with
/// random access: `recording.at("layer2").rows() | ranges::views::stride(10)`.
class TORCHTAP_API Rows : public ranges::view_base {
 public:
  /// No rows.
  Rows();
  /// Maps the files of the entry's directory. Throws `c10::ValueError` for an entry that is beside rows, for
  /// samples that hold no tensors of one shape, and for files that are missing or damaged.
  explicit Rows(const storage::RecordedEntry& entry);

  /// The number of rows.
  std::int64_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }
  /// The dtype of a row.
  at::ScalarType dtype() const noexcept;
  /// The shape of a row.
  std::vector<std::int64_t> shape() const;

  /// Row `index`, a view of the file: do not write to it. Negative numbers count from the end. Throws
  /// `c10::IndexError`.
  at::Tensor row(std::int64_t index) const;
  /// The same.
  at::Tensor operator[](std::int64_t index) const { return row(index); }
  /// Rows from `begin` to before `end`, `[end - begin, …]`: a view if they lie in one file, else a copy.
  /// Negative numbers count from the end. Throws `c10::IndexError`.
  at::Tensor slice(std::int64_t begin, std::int64_t end) const;
  /// Copies the rows of a list of numbers, int64 `[n]`, into `out`, `[n, …]`, and returns it. Throws
  /// `c10::IndexError` for a number that is no row, `c10::ValueError` for an `out` of another shape or dtype,
  /// or that is not contiguous on the CPU.
  at::Tensor& gather(const at::Tensor& indices, at::Tensor& out) const;
  /// The same into a new tensor.
  at::Tensor gather(const at::Tensor& indices) const;

  /// The names of what is beside the rows.
  std::vector<std::string> names() const;
  /// What is beside the rows under a name, a value for each row, `[size(), …]`; texts: see `strings`. Throws
  /// `c10::IndexError` listing the names if there is none of this name, and `c10::ValueError` if some rows
  /// have no value (see `having`).
  at::Tensor beside(const std::string& name) const;
  /// The same for the rows of a list of numbers, int64 `[n]`.
  at::Tensor beside(const std::string& name, const at::Tensor& indices) const;
  /// The numbers of the rows that have a value under a name, int64.
  at::Tensor having(const std::string& name) const;
  /// Where a row is from. Throws `c10::IndexError`.
  Where where(std::int64_t index) const;

  /// Iterates over rows; `*iterator` is a tensor. An iterator reads its rows when `Rows` is gone, too.
  class Iterator;
  Iterator begin() const;
  Iterator end() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

class Rows::Iterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = at::Tensor;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = at::Tensor;

  Iterator() = default;
  Iterator(Rows rows, std::int64_t at) noexcept : rows_(std::move(rows)), at_(at) {}
  at::Tensor operator*() const { return rows_.row(at_); }
  at::Tensor operator[](difference_type n) const { return rows_.row(at_ + n); }
  // clang-format off
  Iterator& operator++() noexcept { ++at_; return *this; }
  Iterator& operator--() noexcept { --at_; return *this; }
  Iterator operator++(int) noexcept { Iterator before = *this; ++at_; return before; }
  Iterator operator--(int) noexcept { Iterator before = *this; --at_; return before; }
  Iterator& operator+=(difference_type n) noexcept { at_ += n; return *this; }
  Iterator& operator-=(difference_type n) noexcept { at_ -= n; return *this; }
  // clang-format on
  friend Iterator operator+(Iterator a, difference_type n) noexcept { return a += n; }
  friend Iterator operator+(difference_type n, Iterator a) noexcept { return a += n; }
  friend Iterator operator-(Iterator a, difference_type n) noexcept { return a -= n; }
  friend difference_type operator-(const Iterator& a, const Iterator& b) noexcept { return a.at_ - b.at_; }
  friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.at_ == b.at_; }
  friend bool operator!=(const Iterator& a, const Iterator& b) noexcept { return a.at_ != b.at_; }
  friend bool operator<(const Iterator& a, const Iterator& b) noexcept { return a.at_ < b.at_; }
  friend bool operator>(const Iterator& a, const Iterator& b) noexcept { return a.at_ > b.at_; }
  friend bool operator<=(const Iterator& a, const Iterator& b) noexcept { return a.at_ <= b.at_; }
  friend bool operator>=(const Iterator& a, const Iterator& b) noexcept { return a.at_ >= b.at_; }

 private:
  Rows rows_;
  std::int64_t at_ = 0;
};

inline Rows::Iterator Rows::begin() const {
  return {*this, 0};
}
inline Rows::Iterator Rows::end() const {
  return {*this, size()};
}

/// Whether a recording has rows with what is beside them (`RecorderOptions::rows`).
TORCHTAP_API bool is_dump(const storage::Recording& recording);

}  // namespace torchtap::rows

namespace torchtap::storage::extend {

/// What `RecordedEntry::rows` returns.
template <>
struct RowsOf<RecordedEntry> {
  using Rows = rows::Rows;
};

}  // namespace torchtap::storage::extend
