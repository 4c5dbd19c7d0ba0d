#pragma once

/// Gathers rows until there are enough of them for one matrix product.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::statistics::detail {

/// Gathers rows of D numbers in float64 (complex128), on the device of the samples.
///
/// A product with one row reads and writes D^2 numbers for D^2 multiplications; a product with many rows uses
/// each number that it reads as often. The places take an eighth of the memory of a [D, D] state from D =
/// 1024 to 4096, and less beyond.
class TORCHTAP_API Block {
 public:
  /// Number of rows of `size` numbers after which a product is worth its traffic.
  static std::int64_t places(std::int64_t size) noexcept {
    return std::clamp<std::int64_t>(size / 8, 128, 512);
  }

  bool empty() const noexcept { return used_ == 0; }
  std::int64_t rows() const noexcept { return used_; }
  bool full() const noexcept { return rows_ && used_ >= rows_->size(0); }
  /// Whether `count` more rows fit.
  bool fits(std::int64_t count) const noexcept;
  /// [rows so far, D]; shares the memory. Undefined if the block was never used.
  at::Tensor held() const;
  /// Copies the rows [n, D], which fit, and keeps complex numbers from then on if they are complex.
  void append(const at::Tensor& rows);
  /// Copies small rows without ATen. Returns false and does nothing if they need more room or are the first
  /// ones.
  bool append(const reductions::extend::Lines& lines) noexcept;
  /// Forgets the last `count` rows.
  void drop(std::int64_t count) noexcept { used_ -= count; }
  void clear() noexcept { used_ = 0; }

  template <class Archive>
  void serialize(Archive& archive) {
    at::Tensor rows;
    if (Archive::is_saving::value && !empty()) rows = held();
    archive(rows);
    if constexpr (Archive::is_loading::value) {
      used_ = rows.defined() && rows.dim() != 0 ? rows.size(0) : 0;
      rows_ = std::move(rows);
    }
  }
  /// Whether a tensor read from an archive holds rows of `size` numbers, fewer than would have been
  /// multiplied, or is undefined.
  bool is_sound(std::int64_t size) const noexcept;

 private:
  reductions::extend::Owned rows_;  // [places, D]; fewer places only after loading
  std::int64_t used_ = 0;
};

}  // namespace torchtap::statistics::detail
