#pragma once

/// Serialises tensors with cereal, so that reductions and recorders can keep their state across runs.
///
/// The archive is cereal's portable binary one, so a state written on one machine loads on another. A tensor
/// is written as dtype, device, shape and contiguous bytes. Views are written in full; gradients are not
/// kept. docs/format.md specifies the bytes.

#include <ATen/core/Tensor.h>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/common.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <type_traits>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

/// The archive to which state is written.
using OutputArchive = cereal::PortableBinaryOutputArchive;

/// Reads state: cereal's portable binary archive, in which a list or text cannot claim more bytes than the
/// rest of the input has. A damaged archive so ends in `cereal::Exception` before memory is taken for it.
class TORCHTAP_API InputArchive : public cereal::InputArchive<InputArchive, cereal::AllowEmptyClassElision> {
 public:
  /// Throws `cereal::Exception` if `stream` is empty.
  explicit InputArchive(std::istream& stream);
  ~InputArchive() noexcept override;

  /// For cereal: reads `size` bytes, of numbers of `Width` bytes each.
  template <std::streamsize Width>
  void loadBinary(void* data, std::streamsize size) {
    read(data, static_cast<std::uint64_t>(size), static_cast<std::size_t>(Width));
  }
  /// For cereal: throws unless `size` things may follow.
  void check_size(std::uint64_t size) const;

 private:
  void read(void* data, std::uint64_t size, std::size_t width);

  std::istream& stream_;
  std::uint64_t left_;  // bytes; as many as there can be where the stream does not know
  bool swapped_ = false;
};

/// For cereal: a number. A bool is 0 or 1 in a byte; throws `cereal::Exception` for another one.
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>> load(InputArchive& archive, T& number) {
  if constexpr (std::is_same_v<T, bool>) {
    std::uint8_t byte = 0;
    load(archive, byte);
    if (byte > 1) throw cereal::Exception("the archive has a bool that is neither 0 nor 1");
    number = byte == 1;
  } else {
    archive.loadBinary<sizeof(T)>(&number, sizeof(T));
  }
}
/// For cereal: numbers behind one another.
template <class T>
void load(InputArchive& archive, cereal::BinaryData<T>& numbers) {
  archive.loadBinary<sizeof(std::remove_pointer_t<T>)>(numbers.data,
                                                       static_cast<std::streamsize>(numbers.size));
}
/// For cereal: a value that has a name in other archives.
template <class T>
void load(InputArchive& archive, cereal::NameValuePair<T>& named) {
  archive(named.value);
}
/// For cereal: the size of a list or text.
template <class T>
void load(InputArchive& archive, cereal::SizeTag<T>& tag) {
  archive(tag.size);
  archive.check_size(tag.size);
}

namespace extend {
class StateArchive;
/// Notes the version of a reduction's state, if `archive` is a `StateOutput`.
TORCHTAP_API void note_version(OutputArchive& archive, const char* what, std::uint32_t version);
}  // namespace extend

namespace detail {

/// The parts of a tensor in an archive. `dtype` is c10's number of the scalar type, -1 for an undefined
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

/// Throws `c10::TypeError` for tensors without plain bytes (sparse, quantized, mkldnn).
TORCHTAP_API PackedTensor pack(const at::Tensor& tensor);
/// The device of a state that was saved on device number `index` of c10's type number `type`: the same, this
/// thread's of its type if there are fewer, or the CPU if there is none. Throws `c10::ValueError` if LibTorch
/// has no such device, as in a damaged archive.
TORCHTAP_API at::Device device_of(std::int32_t type, std::int32_t index);
/// Makes the tensor on its `device_of`. Throws `c10::ValueError` if the parts contradict each other, as in a
/// damaged archive.
TORCHTAP_API at::Tensor unpack(const PackedTensor& packed);
/// Writes a tensor: packed, or as a `StateOutput` does.
TORCHTAP_API void save(OutputArchive& archive, const at::Tensor& tensor);
/// Reads a tensor that `save` wrote.
TORCHTAP_API void load(InputArchive& archive, at::Tensor& tensor);
/// Null unless the state goes to another process or comes from one.
TORCHTAP_API extend::StateArchive* state_of(OutputArchive& archive);
/// As above, for reading.
TORCHTAP_API extend::StateArchive* state_of(InputArchive& archive);

/// Throws `c10::ValueError`: this build cannot read version `found` of the state of `what`.
[[noreturn]] TORCHTAP_API void unknown_state_version(const char* what, std::uint32_t found,
                                                     std::uint32_t current);

}  // namespace detail

/// Writes `current`, the version of the state of a reduction called `what`, before that state; or reads and
/// returns the stored version, so that older states can be read as they were written. Throws
/// `c10::ValueError` if it is newer than `current`.
///
///     template <class Archive>
///     void serialize(Archive& archive) {
///       const auto version = core::state_version(archive, "MyReduction", 2);
///       archive(count_, sum_);
///       if (version >= 2) archive(weights_);
///     }
///
/// Raise the number whenever `serialize` changes, and keep reading older versions.
template <class Archive>
std::uint32_t state_version(Archive& archive, const char* what, std::uint32_t current) {
  std::uint32_t version = current;
  archive(cereal::make_nvp("version", version));
  if constexpr (Archive::is_loading::value) {
    if (version == 0 || version > current) detail::unknown_state_version(what, version, current);
  } else if constexpr (std::is_base_of_v<OutputArchive, Archive>) {
    extend::note_version(archive, what, current);
  }
  return version;
}

/// Declares, while it lives, that a reduction reads and writes a state of independent elements: `merge`
/// computes each element of its tensors from the same element of both states, and its numbers only from
/// numbers. Ranks that merge then compute a part of the elements each.
///
///     template <class Archive>
///     void serialize(Archive& archive) {
///       core::state_version(archive, "MyReduction", 1);
///       core::Elementwise elementwise(archive);
///       archive(count_, sizes_);     // numbers, and the shape of the samples
///       elementwise.sizes(sizes_);
///       archive(sum_);               // [sizes..., any further dimensions]
///     }
///
/// States in files are not changed by it.
class TORCHTAP_API Elementwise {
 public:
  /// `is`: whether the state is elementwise; false does nothing.
  template <class Archive>
  explicit Elementwise(Archive& archive, bool is = true) {
    if constexpr (std::is_base_of_v<OutputArchive, Archive> || std::is_base_of_v<InputArchive, Archive>) {
      if (is) begin(detail::state_of(archive));
    }
  }
  Elementwise(const Elementwise&) = delete;
  Elementwise& operator=(const Elementwise&) = delete;
  ~Elementwise();

  /// The elements: the first dimensions of all tensors that follow are `sizes`. An archive that has a part of
  /// the elements sets `sizes` to the part's.
  void sizes(std::vector<std::int64_t>& sizes);
  /// The tensors that follow have all elements in their first dimension.
  void flatten();

 private:
  void begin(extend::StateArchive* state);

  extend::StateArchive* state_ = nullptr;
};

}  // namespace torchtap::core

namespace cereal {
namespace traits::detail {

template <>
struct get_output_from_input<torchtap::core::InputArchive> {
  using type = torchtap::core::OutputArchive;
};

}  // namespace traits::detail

template <class Archive>
void CEREAL_SAVE_FUNCTION_NAME(Archive& archive, const at::Tensor& tensor) {
  torchtap::core::detail::save(archive, tensor);
}

template <class Archive>
void CEREAL_LOAD_FUNCTION_NAME(Archive& archive, at::Tensor& tensor) {
  torchtap::core::detail::load(archive, tensor);
}

}  // namespace cereal
