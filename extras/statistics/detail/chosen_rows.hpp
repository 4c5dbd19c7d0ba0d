#pragma once

/// Looks up the companions of a sample, which have a row for each of its rows, and chooses rows of both.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::statistics::detail {

/// While it lives, companions in this thread have only the chosen rows: a reduction inside of `by` and
/// `where` sees the same rows of the sample and of its companions.
class TORCHTAP_API Selection {
 public:
  /// `rows` index the rows that a companion of shape `shape` has. Both must outlive the selection.
  Selection(at::IntArrayRef shape, c10::ArrayRef<std::int64_t> rows);
  Selection(const Selection&) = delete;
  Selection& operator=(const Selection&) = delete;
  ~Selection();

  /// The chosen rows of a companion called `name`, of the shape before this selection.
  at::Tensor of(const at::Tensor& companion, const std::string& name) const;
  const Selection* outer() const noexcept { return outer_; }

 private:
  at::IntArrayRef shape_;
  c10::ArrayRef<std::int64_t> rows_;
  const Selection* outer_;
};

/// The rows of the tensor, one after the other: its first `dims` dimensions are one. All of it if `dims` is
/// 0.
TORCHTAP_API at::Tensor as_rows(const at::Tensor& tensor, std::int64_t dims);

/// The rows of a sample to choose among; on the CPU contiguous, as a `Pass` needs them.
TORCHTAP_API at::Tensor as_source(const at::Tensor& sample, std::int64_t dims);

/// `rows`, each of which comes once, of the tensor, on its device, where the indices are copied to. The
/// tensor itself if they are all of its rows, in order.
TORCHTAP_API at::Tensor choose_rows(const at::Tensor& tensor, c10::ArrayRef<std::int64_t> rows);

/// The companion of that name, whatever its shape, with the rows that `by` and `where` chose. Throws
/// `c10::ValueError` if this thread has none; `what` is the class that asks.
TORCHTAP_API at::Tensor any_companion(const char* what, const std::string& name);
/// The companion of that name, whose shape is how the sample's begins, on the CPU or on the sample's device.
/// `what` is the class that asks, to choose rows. Throws `c10::ValueError` if there is no companion, its
/// shape is another, or it is elsewhere; `c10::TypeError` if it or the sample is sparse or quantized.
TORCHTAP_API at::Tensor companion(const char* what, const std::string& name, const at::Tensor& sample);
/// The same of a mask. Throws `c10::TypeError`, too, if it is not of bool.
TORCHTAP_API at::Tensor mask(const std::string& name, const at::Tensor& sample);
/// A companion contiguous, on the CPU. Throws `c10::NotImplementedError` if the sample's device captures a
/// graph, because choosing rows waits for it.
TORCHTAP_API at::Tensor on_cpu(const char* what, const std::string& name, const at::Tensor& companion,
                               const at::Tensor& sample);

}  // namespace torchtap::statistics::detail
