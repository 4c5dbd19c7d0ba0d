#pragma once

/// cereal for tensors: how reductions and recorders keep their state across runs.
///
/// The archive is cereal's portable binary one, so a state written on one machine loads on another. A tensor
/// is written as dtype, device type, shape and its contiguous bytes; views are not shared, gradients are not
/// kept. docs/format.md specifies the bytes.

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

/// Throws `c10::ValueError`: this build does not read version `found` of the state of `what`.
[[noreturn]] void unknown_state_version(const char* what, std::uint32_t found, std::uint32_t current);

}  // namespace detail

/// Writes `current`, the version of the state of a reduction called `what`, in front of that state; or reads
/// the version there and returns it, so that an older state can be read as it was written. Throws
/// `c10::ValueError` if it is newer than `current`.
///
///     template <class Archive>
///     void serialize(Archive& archive) {
///       const auto version = core::state_version(archive, "MyReduction", 2);
///       archive(count_, sum_);
///       if (version >= 2) archive(weights_);
///     }
///
/// Raise the number whenever `serialize` changes, and keep reading the older ones.
template <class Archive>
std::uint32_t state_version(Archive& archive, const char* what, std::uint32_t current) {
  std::uint32_t version = current;
  archive(cereal::make_nvp("version", version));
  if constexpr (Archive::is_loading::value) {
    if (version == 0 || version > current) detail::unknown_state_version(what, version, current);
  }
  return version;
}

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
