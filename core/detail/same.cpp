// Compares two tensors by dtype, layout, shape, device and bytes.

#include <ATen/Functions.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Layout.h>

#include <cstring>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/detail/same.hpp>

namespace torchtap::core::detail {
namespace {

/// The elements on the CPU, one after the other.
at::Tensor plain(const at::Tensor& tensor) {
  const at::Tensor strided = tensor.layout() == c10::kStrided ? tensor : tensor.to_dense();
  return strided.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

}  // namespace

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.is_same(b)) return true;
  if (a.scalar_type() != b.scalar_type() || a.layout() != b.layout() || a.device() != b.device() ||
      a.sizes() != b.sizes()) {
    return false;
  }
  if (a.device().type() == c10::DeviceType::Meta) return true;
  const base::RecordingMode mode;
  // Their scales belong to them; ATen compares these, too.
  if (a.is_quantized()) return a.qscheme() == b.qscheme() && a.equal(b);
  const at::Tensor left = plain(a), right = plain(b);
  return left.nbytes() == 0 || std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

}  // namespace torchtap::core::detail
