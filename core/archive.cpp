// Reads archives without trusting the sizes that they claim, and packs tensors for them.

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <istream>
#include <limits>

#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/archive.hpp>

namespace torchtap::core {

InputArchive::InputArchive(std::istream& stream)
    : cereal::InputArchive<InputArchive, cereal::AllowEmptyClassElision>(this),
      stream_(stream),
      left_(std::numeric_limits<std::uint64_t>::max()) {
  std::streambuf& bytes = *stream.rdbuf();
  if (const std::streamoff here = bytes.pubseekoff(0, std::ios::cur, std::ios::in); here >= 0) {
    const std::streamoff end = bytes.pubseekoff(0, std::ios::end, std::ios::in);
    bytes.pubseekpos(here, std::ios::in);
    if (end >= here) left_ = static_cast<std::uint64_t>(end - here);
  }
  std::uint8_t little_endian = 1;
  (*this)(little_endian);
  swapped_ = little_endian != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 1 : 0);
}

InputArchive::~InputArchive() noexcept = default;

void InputArchive::check_size(std::uint64_t size) const {
  if (size > left_) {
    throw cereal::Exception(
        c10::str("the archive claims ", size, " things where ", left_, " bytes are left"));
  }
}

void InputArchive::read(void* data, std::uint64_t size, std::size_t width) {
  check_size(size);
  auto* const bytes = static_cast<char*>(data);
  const auto found = stream_.rdbuf()->sgetn(bytes, static_cast<std::streamsize>(size));
  if (static_cast<std::uint64_t>(found) != size) throw cereal::Exception("the archive ends too early");
  left_ -= size;
  for (std::uint64_t at = 0; swapped_ && at < size; at += width) std::reverse(bytes + at, bytes + at + width);
}

namespace detail {

void PackedTensor::save(OutputArchive& archive) const {
  archive(dtype, device_type, device_index, sizes, bytes);
}

void PackedTensor::load(InputArchive& archive) {
  archive(dtype, device_type, device_index, sizes, bytes);
}

constexpr auto kDeviceTypes = static_cast<std::int32_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);

void unknown_state_version(const char* what, std::uint32_t found, std::uint32_t current) {
  TORCH_CHECK_VALUE(false, "restore: cannot read the state of ", what, ": ",
                    base::unreadable_format(found, current, "version"), ".");
}

at::Device device_of(std::int32_t type, std::int32_t index) {
  TORCH_CHECK_VALUE(type >= 0 && type < kDeviceTypes && index >= -1 &&
                        index <= std::numeric_limits<c10::DeviceIndex>::max(),
                    "restore: the archive names device number ", index, " of type number ", type,
                    ", which this LibTorch does not have.");
  const auto kind = static_cast<c10::DeviceType>(type);
  if (kind == at::kCPU || !c10::impl::hasDeviceGuardImpl(kind)) return at::kCPU;
  const c10::impl::VirtualGuardImpl guard(kind);
  if (guard.deviceCount() == 0) return at::kCPU;
  return index < guard.deviceCount() ? at::Device(kind, static_cast<c10::DeviceIndex>(index))
                                     : guard.getDevice();
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
  const base::RecordingMode quiet;  // as for `load`
  at::Tensor tensor = at::empty(packed.sizes, at::TensorOptions().dtype(dtype));
  if (!packed.bytes.empty()) std::memcpy(tensor.data_ptr(), packed.bytes.data(), packed.bytes.size());
  const at::Device device = device_of(packed.device_type, packed.device_index);
  return device.is_cpu() ? tensor : tensor.to(device);
}

}  // namespace detail
}  // namespace torchtap::core
