#pragma once

/// A frame is one tensor with all known facts about it, as bytes. The bytes are the same in shared memory, in
/// a pipe and in a file; views/frames/FORMAT.md specifies them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <torchtap/base/api.hpp>

namespace torchtap::views::frames {

/// The place where a tensor was seen. The numbers are part of the format.
enum class Kind : std::uint8_t {
  forward_pre = 0,
  forward_input = 1,
  forward_output = 2,
  backward_input = 3,
  backward_output = 4,
  /// Published by hand (`stream::Publisher::source`).
  other = 5,
  /// A tensor of the model itself.
  parameter = 6,
  buffer = 7,
  /// Tensors of an operation of LibTorch.
  operation_argument = 8,
  operation_result = 9,
  /// The first frame of a pipe or a file, which says what made it as text, and the last.
  header = 10,
  /// The gradient with respect to a parameter.
  backward_parameter = 11,
};
inline constexpr std::size_t kKinds = 12;

/// "ForwardOutput", …; "unknown" for a number of a later version.
TORCHTAP_API std::string_view name_of(Kind kind) noexcept;
/// The kind called `name`. Throws `c10::ValueError` that lists the names.
TORCHTAP_API Kind kind_of(std::string_view name);

/// The content of a frame. The texts and the data lie elsewhere: in the bytes that it was read from, or where
/// the program has them.
struct TORCHTAP_API Frame {
  std::uint64_t sequence = 0;  ///< how many frames its publisher made before
  std::uint64_t time_ns = 0;   ///< when it was published, since 1970, UTC
  std::uint64_t sample = 0;    ///< which event of its module, from 0
  std::uint64_t call = 0;      ///< which call of its module within one forward of the root, from 0
  std::uint64_t readers = 0;   ///< bit `i`: it is for the reader in place `i`; 0 in a pipe and in a file
  std::uint64_t missed = 0;    ///< how many frames were missed before this one; 0 in shared memory
  std::uint32_t thread = 0;    ///< which of the program's threads published it, from 0
  std::uint32_t rank = 0;      ///< of a distributed program
  std::uint32_t checksum = 0;  ///< the CRC-32 of the data, if `has_checksum`
  std::uint16_t slot = 0;      ///< among the flattened inputs, outputs or gradients
  Kind kind = Kind::other;
  std::uint8_t dtype = 0;         ///< the number of the `c10::ScalarType`
  std::uint8_t dims = 0;          ///< at most `kMostDims`
  std::int8_t device_type = 0;    ///< where the tensor was: the number of the `c10::DeviceType`
  std::int8_t device_index = -1;  ///< -1 if the device has no index
  bool has_checksum = false;      ///< in a pipe and in a file
  bool without_data = false;      ///< the tensor could not be sent: `text` says why
  std::array<std::int64_t, 8> sizes{};
  std::string_view path;    ///< of the module
  std::string_view type;    ///< of the module: "Conv2d"
  std::string_view text;    ///< what the program says at the moment: "epoch 3"
  std::string_view result;  ///< of a reduction: "mean"; empty for a sample
  const void* data = nullptr;
  std::uint64_t data_bytes = 0;
};

/// Limits of version 1.
inline constexpr std::size_t kMostDims = 8;
inline constexpr std::size_t kMostText = 4096;  // of each of the four texts, bytes
inline constexpr std::uint64_t kMostData = std::uint64_t{1} << 40;

/// The bytes of an element of the dtype with this number; 0 for a number that this version does not know.
TORCHTAP_API std::size_t element_bytes(std::uint8_t dtype) noexcept;

/// The bytes in front of the data, a multiple of 64. Texts longer than `kMostText` are cut off where a
/// character of UTF-8 ends.
TORCHTAP_API std::uint64_t header_bytes(const Frame& frame) noexcept;
/// The bytes of the whole frame, a multiple of 64.
TORCHTAP_API std::uint64_t frame_bytes(const Frame& frame) noexcept;
/// Writes the bytes in front of the data, `header_bytes(frame)` of them. The data follow; the bytes behind
/// the data, up to `frame_bytes(frame)`, mean nothing.
TORCHTAP_API void write_header(const Frame& frame, void* to) noexcept;

/// The length of the frame that begins with these `size` bytes; 16 are enough. Throws `c10::ValueError` if
/// they are not the beginning of a frame, or of a version that this library does not know.
TORCHTAP_API std::uint64_t frame_length(const void* bytes, std::uint64_t size);
/// Reads a whole frame. Its texts and data point into `bytes`. Throws `c10::ValueError` if anything in it
/// contradicts itself; reads nothing outside of `size` bytes, whatever they are.
TORCHTAP_API Frame read_frame(const void* bytes, std::uint64_t size);

}  // namespace torchtap::views::frames
