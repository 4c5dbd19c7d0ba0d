#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/detail/error.hpp>

namespace torchtap::core::detail {

PackedTensor pack(const at::Tensor& tensor) {
  PackedTensor packed;
  if (!tensor.defined()) return packed;
  TORCH_CHECK_TYPE(
      tensor.layout() == c10::kStrided && !tensor.is_quantized(), "snapshot: a tensor of layout ",
      tensor.layout(), " and dtype ", tensor.scalar_type(),
      " has no plain bytes to keep; record it with a transform such as to_dense() or dequantize().");
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
  packed.dtype = static_cast<std::int32_t>(tensor.scalar_type());
  packed.device_type = static_cast<std::int32_t>(tensor.device().type());
  packed.device_index = tensor.device().index();
  packed.sizes.assign(plain.sizes().begin(), plain.sizes().end());
  packed.bytes.resize(plain.nbytes());
  if (!packed.bytes.empty()) std::memcpy(packed.bytes.data(), plain.data_ptr(), packed.bytes.size());
  return packed;
}

at::Tensor unpack(const PackedTensor& packed) {
  if (packed.dtype == -1) return {};
  TORCH_CHECK_VALUE(
      packed.dtype >= 0 && packed.dtype < static_cast<std::int32_t>(c10::ScalarType::NumOptions),
      "restore: the archive names dtype number ", packed.dtype, ", which this LibTorch does not have.");
  const auto dtype = static_cast<c10::ScalarType>(packed.dtype);
  const bool empty = std::find(packed.sizes.begin(), packed.sizes.end(), 0) != packed.sizes.end();
  std::uint64_t bytes = empty ? 0 : c10::elementSize(dtype);
  bool fits = true;
  for (const auto size : packed.sizes) {
    fits =
        fits && size >= 0 && (bytes == 0 || bytes <= packed.bytes.size() / static_cast<std::uint64_t>(size));
    bytes *= static_cast<std::uint64_t>(size);
  }
  TORCH_CHECK_VALUE(fits && bytes == packed.bytes.size(), "restore: the archive claims a tensor of shape ",
                    c10::IntArrayRef(packed.sizes), " and dtype ", dtype, " in ", packed.bytes.size(),
                    " bytes; it is damaged.");
  at::Tensor tensor = at::empty(packed.sizes, at::TensorOptions().dtype(dtype));
  if (!packed.bytes.empty()) std::memcpy(tensor.data_ptr(), packed.bytes.data(), packed.bytes.size());
  const auto type = static_cast<c10::DeviceType>(packed.device_type);
  if (type == c10::DeviceType::CPU) return tensor;
  return tensor.to(c10::Device(type, static_cast<c10::DeviceIndex>(packed.device_index)));
}

}  // namespace torchtap::core::detail
