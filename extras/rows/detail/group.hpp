#pragma once

/// Defines `Group`, the rows that all calls of one forward with the same row dimensions and mask have: which
/// of them are kept, and the values beside them.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/rows/detail/asked.hpp>

namespace torchtap::rows::detail {

/// What `core::Context` names now; undefined where a name is missing.
class Named {
 public:
  explicit Named(const Asked& asked);
  /// Whether these are the same tensors, which nobody has changed in place since.
  bool operator==(const Named& other) const noexcept;

  at::Tensor mask;
  c10::SmallVector<at::Tensor, 2> beside;

 private:
  c10::SmallVector<std::int64_t, 3> versions_;
};

/// See above. Unchanging, but for what `Dump` notes.
class Group {
 public:
  /// Of a forward with this number, with row dimensions of these sizes.
  Group(const Asked& asked, Named named, std::vector<std::int64_t> sizes, std::int64_t forward);

  bool is_of(const Named& named, at::IntArrayRef sizes) const noexcept {
    return at::IntArrayRef(sizes_) == sizes && named_ == named;
  }
  /// Why no call with these rows can be kept; "" if it can. To be read after `Dump` has seen the group.
  std::string why_not;
  std::int64_t forward() const noexcept { return forward_; }
  /// How many rows are kept.
  std::int64_t rows() const noexcept { return rows_; }
  /// Their places in the call, int64 [rows]; undefined if all are kept.
  const at::Tensor& chosen() const noexcept { return chosen_; }
  /// The values of a name beside them, [rows, …].
  const at::Tensor& beside(std::size_t name) const noexcept { return beside_[name]; }

  /// Noted by `Dump`, under its lock.
  std::int64_t number = -1;
  bool written = false;

 private:
  void choose(const Asked& asked);
  void add_beside(const std::string& name, const at::Tensor& tensor);

  const Named named_;
  const std::vector<std::int64_t> sizes_;
  const std::int64_t forward_;
  std::int64_t rows_ = 1;
  at::Tensor chosen_;
  c10::SmallVector<at::Tensor, 2> beside_;
};

}  // namespace torchtap::rows::detail
