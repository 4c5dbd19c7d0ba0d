#pragma once

/// cereal for tensors: how reductions and recorders keep their state across runs.
///
/// The archive is cereal's portable binary one, so a state written on one machine loads on another. A tensor
/// is written as dtype, device type, shape and its contiguous bytes; views are not shared, gradients are not
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

/// What state is written to.
using OutputArchive = cereal::PortableBinaryOutputArchive;
/// What state is read from.
using InputArchive = cereal::PortableBinaryInputArchive;

namespace detail {

/// A tensor taken apart for an archive. `dtype` is c10's number of the scalar type, -1 for an undefined
/// tensor.
struct TORCHTAP_API PackedTensor {
  std::int32_t dtype = -1;
  std::int32_t device_type = 0;
  std::int32_t device_index = -1;
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;

  void save(OutputArchive& archive) const;
  void load(InputArchive& archive);
};

/// Throws `c10::TypeError` for layouts that have no plain bytes (sparse, quantized, mkldnn).
TORCHTAP_API PackedTensor pack(const at::Tensor& tensor);
/// Throws `c10::ValueError` if the parts do not fit each other, whatever the archive claimed.
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
