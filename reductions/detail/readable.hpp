#pragma once

/// A sample as the kernels read it: where its elements lie, and in which order.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/fast/memory.hpp>
#include <torchtap/reductions/fast/reader.hpp>
#include <torchtap/reductions/options.hpp>

namespace torchtap::reductions::detail {

/// A sample as the kernels read it, or chosen rows of one.
///
/// The kernels read strided CPU samples of float32, float64, float16 or bfloat16, in pieces that depend only
/// on the shape and are combined in order, so the number of threads does not change the result. For other
/// samples, for foldings that they cannot express, and in a build without kernels, only small contiguous CPU
/// samples have an answer. Chosen rows are read where they lie if the kernels can; for all else they are
/// copied side by side.
class TORCHTAP_API Readable {
 public:
  explicit Readable(const at::Tensor& sample);
  /// Ascending rows, at least one, of a contiguous sample on the CPU.
  Readable(const Readable& whole, c10::ArrayRef<std::int64_t> rows);
  /// Stands for samples of the CPU that were read elsewhere; the elements of `like` are not.
  static Readable read_elsewhere(const at::Tensor& like) { return {like, like.scalar_type(), like.numel()}; }
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;

  /// The sample. Chosen rows become a tensor here, when it is first asked for.
  const at::Tensor& tensor() const { return chosen() == nullptr ? source_ : gathered(); }
  at::IntArrayRef sizes() const {
    return chosen() == nullptr ? source_.sizes() : at::IntArrayRef(chosen()->sizes);
  }
  std::int64_t numel() const noexcept { return numel_; }
  /// The dtype of a strided sample on the CPU that has elements; otherwise undefined.
  c10::ScalarType type() const noexcept { return type_; }
  /// Whether the kernels can read the sample, at least elementwise.
  bool plain() const noexcept { return plain_; }
  /// Whether the sample is small, contiguous and of numbers that loops read.
  bool small() const noexcept { return small_; }
  /// A small sample in memory; otherwise null.
  const Memory* memory() const {
    if (!small_) return nullptr;
    if (memory_.data == nullptr) (void)tensor();
    return &memory_;
  }
  /// The places of chosen rows that are no neighbours; null otherwise, or once they were copied.
  const Scattered* scattered() const noexcept {
    const Chosen* const chosen = this->chosen();
    return memory_.data == nullptr && chosen != nullptr && chosen->where.data != nullptr ? &chosen->where
                                                                                         : nullptr;
  }

  /// How the kernels fold the sample; nothing if they cannot.
  std::optional<Layout> layout(const Folding& folding) const;
  /// Fills in the answer to a request whose layout is of this sample.
  void read(Read& read) const;
  /// Adds the sample elementwise, as the `count`-th, to mean, m2 and, if they are four, m3 and m4: dense
  /// float64 tensors of its shape, which may get the order in memory of the sample. Returns false and changes
  /// nothing if the kernels cannot read it.
  bool add_to_moments(double count, std::initializer_list<at::Tensor*> moments) const;

 private:
  Readable(const at::Tensor& like, c10::ScalarType type, std::int64_t numel)
      : source_(like), numel_(numel), type_(type), plain_(true) {}
  void put_in_order();
  const at::Tensor& gathered() const;
  const at::Tensor& contiguous() const {
    return seldom_ && seldom_->ordered.defined() ? seldom_->ordered : tensor();
  }
  at::Tensor beside(std::initializer_list<at::Tensor*> states) const;

  /// Rows of another sample.
  struct Chosen {
    c10::DimVector sizes;
    Scattered where;
    at::Tensor gathered;  // once they are asked for
  };

  // Most small samples do not need it, and then neither make nor destroy it.
  struct Seldom {
    ~Seldom();  // apart, so that a pass tests only whether there is one
    std::optional<Chosen> chosen;
    at::Tensor ordered;               // the same elements, contiguous; undefined if the sample is
    std::vector<std::int64_t> order;  // the sample's dimensions in their order in `ordered`
  };
  Seldom& seldom() { return seldom_ ? *seldom_ : seldom_.emplace(); }
  Chosen* chosen() const noexcept { return seldom_ && seldom_->chosen ? &*seldom_->chosen : nullptr; }
  c10::ArrayRef<std::int64_t> order_of_dims() const noexcept {
    return seldom_ ? c10::ArrayRef<std::int64_t>(seldom_->order) : c10::ArrayRef<std::int64_t>();
  }

  const at::Tensor& source_;  // the sample, or the tensor that rows are chosen from
  std::int64_t numel_ = 0;
  c10::ScalarType type_ = c10::ScalarType::Undefined;
  bool plain_ = false;
  bool has_bits_ = false;  // whether numbers can be counted by their bits; `plain_` implies it
  bool small_ = false;
  mutable Memory memory_{};  // of a contiguous sample; without data while its rows are scattered
  mutable std::optional<Seldom> seldom_;
};

}  // namespace torchtap::reductions::detail
