#pragma once

/// The bytes of memory that the elements of a tensor occupy: whether a write through one view reaches
/// another.

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>

namespace at {
class Tensor;
}

namespace torchtap::views::watch {

/// The bytes of one storage that a tensor's elements occupy. It holds no reference to the storage, and stays
/// as it was made when the tensor gets other sizes.
///
/// Exact for views by slicing, selecting, splitting, permuting and expanding. If views cut a memory in very
/// many pieces that do not fit together, or overlap themselves (`as_strided`), `overlaps` may say yes and
/// `covers` no although it is not so.
class TORCHTAP_API Region {
 public:
  /// A region without bytes.
  Region() = default;
  /// The bytes of a tensor's elements; all of its memory if it does not say where they are (nested tensors),
  /// no bytes if it has no storage (sparse ones).
  explicit Region(const at::Tensor& tensor);

  bool empty() const noexcept { return end_ == begin_; }
  /// The address of the storage; null for no bytes.
  const void* memory() const noexcept { return memory_; }
  /// Whether a byte belongs to both.
  bool overlaps(const Region& other) const;
  /// Whether all bytes of `other` belong to this one.
  bool covers(const Region& other) const;

 private:
  friend class Remainder;
  struct Step {
    std::int64_t stride, size;
  };
  struct Part;
  class Steps;

  Part part() const;

  const void* memory_ = nullptr;
  std::int64_t begin_ = 0, end_ = 0;  // the first byte, and the one after the last
  std::int64_t run_ = 0;              // bytes side by side
  c10::SmallVector<Step, 3> steps_;   // from run to run, the widest first; each wider than all inside of it
  bool loose_ = false;                // between `begin_` and `end_` may be bytes of others
};

/// The rest of a region while parts of it are taken away: shows which of many writes a view still has.
class TORCHTAP_API Remainder {
 public:
  explicit Remainder(Region region) : region_(std::move(region)), empty_(region_.empty()) {}

  bool empty() const noexcept { return empty_; }
  /// Takes the bytes of `taken` away, and returns whether any of them was left. If `region` has more than
  /// some thousand pieces, they stay unless `taken` covers them all.
  bool take(const Region& taken);

 private:
  struct Run {
    std::int64_t begin, end;
  };

  Region region_;
  std::vector<Run> runs_;  // in order; none before the first part was taken
  bool empty_;
};

}  // namespace torchtap::views::watch
