#pragma once

/// Serialises tensors with cereal, so that reductions and recorders can keep their state across runs.
///
/// The archive is cereal's portable binary one, so a state written on one machine loads on another. A tensor
/// is written as dtype, device, shape and contiguous bytes. Views are written in full; gradients are not
/// kept.

#include <ATen/core/Tensor.h>

#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/common.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <torchtap/core/api.hpp>
#include <vector>

namespace torchtap::core {

using OutputArchive = cereal::PortableBinaryOutputArchive;
using InputArchive = cereal::PortableBinaryInputArchive;

namespace detail {

/// The parts of a tensor in an archive. `dtype` is c10's number of the scalar type, -1 for an undefined
/// tensor.
struct TORCHTAP_API PackedTensor {
  std::int32_t dtype = -1;
  std::int32_t device_type = 0;
  std::int32_t device_index = -1;
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(dtype), CEREAL_NVP(device_type), CEREAL_NVP(device_index), CEREAL_NVP(sizes),
            CEREAL_NVP(bytes));
  }
};

/// Throws `c10::TypeError` for tensors without plain bytes (sparse, quantized, mkldnn).
TORCHTAP_API PackedTensor pack(const at::Tensor& tensor);
/// Throws `c10::ValueError` if the parts contradict each other, as in a damaged archive.
TORCHTAP_API at::Tensor unpack(const PackedTensor& packed);

}  // namespace detail
}  // namespace torchtap::core

namespace cereal {

template <class Archive>
void CEREAL_SAVE_FUNCTION_NAME(Archive& archive, const at::Tensor& tensor) {
  archive(make_nvp("tensor", torchtap::core::detail::pack(tensor)));
}

template <class Archive>
void CEREAL_LOAD_FUNCTION_NAME(Archive& archive, at::Tensor& tensor) {
  torchtap::core::detail::PackedTensor packed;
  archive(make_nvp("tensor", packed));
  tensor = torchtap::core::detail::unpack(packed);
}

}  // namespace cereal
