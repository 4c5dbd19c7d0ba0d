// Keeps the large tensors of a state beside its bytes.
#include <ATen/Functions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <istream>
#include <ostream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/core/detail/packed_state.hpp>

namespace torchtap::core::detail {
namespace {

/// This thread's device of the same kind. Ranks number their devices each for itself.
at::Device here(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU || !c10::impl::hasDeviceGuardImpl(type)) return at::kCPU;
  const c10::impl::VirtualGuardImpl guard(type);
  return guard.deviceCount() == 0 ? at::Device(at::kCPU) : guard.getDevice();
}

bool goes_beside(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.element_size() >= StateWriter::kBeside;
}

}  // namespace

StateWriter::StateWriter(std::ostream& stream) : core::OutputArchive(stream) {}
StateWriter::~StateWriter() noexcept = default;

StateReader::StateReader(std::istream& stream, std::vector<at::Tensor> tensors)
    : core::InputArchive(stream), tensors_(std::move(tensors)) {}
StateReader::~StateReader() noexcept = default;

at::Tensor StateReader::take(const TensorPlace& place) {
  const bool there = next_ < tensors_.size();
  const bool fits = there && tensors_[next_].sizes() == at::IntArrayRef(place.sizes) &&
                    static_cast<std::int32_t>(tensors_[next_].scalar_type()) == place.dtype;
  TORCH_CHECK_VALUE(fits, "merge: the state of another rank lacks its tensor ", next_, " of shape ",
                    at::IntArrayRef(place.sizes), "; its bytes were damaged on the way.");
  at::Tensor tensor = std::move(tensors_[next_++]);
  return tensor.to(here(static_cast<c10::DeviceType>(place.device_type)));
}

void note_version(OutputArchive& archive, const char* what, std::uint32_t version) {
  if (auto* const writer = dynamic_cast<StateWriter*>(&archive))
    writer->facts.push_back({what, version, false, {}});
}

void note_shape(OutputArchive& archive, const char* what, bool shaped,
                const std::vector<std::int64_t>& shape) {
  if (auto* const writer = dynamic_cast<StateWriter*>(&archive))
    writer->facts.push_back({what, 0, shaped, shape});
}

at::Device placed(InputArchive& archive, at::Device device) {
  return dynamic_cast<StateReader*>(&archive) == nullptr ? device : here(device.type());
}

void save(OutputArchive& archive, const at::Tensor& tensor) {
  auto* const writer = dynamic_cast<StateWriter*>(&archive);
  if (writer == nullptr) {
    archive(cereal::make_nvp("tensor", pack(tensor)));
    return;
  }
  const bool beside = goes_beside(tensor);
  archive(beside);
  if (!beside) {
    PackedTensor packed = pack(tensor);
    archive(packed);
    return;
  }
  TensorPlace place;
  place.dtype = static_cast<std::int32_t>(tensor.scalar_type());
  place.device_type = static_cast<std::int32_t>(tensor.device().type());
  place.sizes = tensor.sizes().vec();
  archive(place);
  writer->tensors.push_back(tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous());
}

void load(InputArchive& archive, at::Tensor& tensor) {
  auto* const reader = dynamic_cast<StateReader*>(&archive);
  bool beside = false;
  if (reader != nullptr) archive(beside);
  if (beside) {
    TensorPlace place;
    archive(place);
    tensor = reader->take(place);
    return;
  }
  PackedTensor packed;
  archive(cereal::make_nvp("tensor", packed));
  if (reader != nullptr && packed.dtype != -1) {
    const at::Device device = here(static_cast<c10::DeviceType>(packed.device_type));
    packed.device_type = static_cast<std::int32_t>(device.type());
    packed.device_index = device.index();
  }
  tensor = unpack(packed);
}

}  // namespace torchtap::core::detail
