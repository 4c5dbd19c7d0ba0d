#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include <torchtap/core/archive.hpp>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/detail/format.hpp>

namespace torchtap::core::detail {
namespace {

/// Reads a vector as cereal writes it. Memory grows with the bytes that arrive, so that a forged size is an
/// error at the end of the archive instead of a huge allocation.
template <class T>
void load_vector(InputArchive& archive, std::vector<T>& vector) {
  constexpr std::uint64_t kAtOnce = (std::uint64_t{1} << 24) / sizeof(T);
  cereal::size_type left = 0;
  archive(cereal::make_size_tag(left));
  vector.clear();
  while (left != 0) {
    const auto now = static_cast<std::size_t>(std::min<std::uint64_t>(left, kAtOnce));
    const std::size_t before = vector.size();
    vector.resize(before + now);
    archive(cereal::binary_data(vector.data() + before, now * sizeof(T)));
    left -= now;
  }
}

}  // namespace

void PackedTensor::save(OutputArchive& archive) const {
  archive(dtype, device_type, device_index, sizes, bytes);
}

void PackedTensor::load(InputArchive& archive) {
  archive(dtype, device_type, device_index);
  load_vector(archive, sizes);
  load_vector(archive, bytes);
}

void unknown_state_version(const char* what, std::uint32_t found, std::uint32_t current) {
  TORCH_CHECK_VALUE(false, "restore: cannot read the state of ", what, ": ",
                    core::detail::unreadable_format("version", found, current), ".");
}

PackedTensor pack(const at::Tensor& tensor) {
  PackedTensor packed;
  if (!tensor.defined()) return packed;
  TORCH_CHECK_TYPE(tensor.layout() == c10::kStrided && !tensor.is_quantized(),
                   "snapshot: a tensor of layout ", tensor.layout(), " and dtype ", tensor.scalar_type(),
                   " cannot be saved; record it with a transform such as to_dense() or dequantize().");
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
  constexpr auto kDeviceTypes = static_cast<std::int32_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);
  TORCH_CHECK_VALUE(packed.device_type >= 0 && packed.device_type < kDeviceTypes &&
                        packed.device_index >= -1 &&
                        packed.device_index <= std::numeric_limits<c10::DeviceIndex>::max(),
                    "restore: the archive names device number ", packed.device_index, " of type number ",
                    packed.device_type, ", which this LibTorch does not have.");
  const auto type = static_cast<c10::DeviceType>(packed.device_type);
  if (type == c10::DeviceType::CPU) return tensor;
  return tensor.to(c10::Device(type, static_cast<c10::DeviceIndex>(packed.device_index)));
}

}  // namespace torchtap::core::detail
