#pragma once

// The fixed part of a frame, as it lies in memory on a little-endian machine.

#include <cstddef>
#include <cstdint>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "views/frames writes its frames as they lie in memory, which needs a little-endian machine"
#endif

namespace torchtap::views::frames {

inline constexpr std::uint32_t kFrameMagic = 0x31465454;    // "TTF1"
inline constexpr std::uint32_t kPaddingMagic = 0x44505454;  // "TTPD": no frame up to the end of the ring
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::uint64_t kAlign = 64;

constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

enum Flags : std::uint8_t { kHasChecksum = 1, kWithoutData = 2 };

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;  // where the data begin
  std::uint64_t frame_bytes;
  std::uint64_t sequence, time_ns, sample, call;
  std::uint64_t data_bytes;
  std::uint64_t readers;
  std::uint64_t missed;
  std::uint32_t thread, rank, checksum;
  std::uint16_t slot;
  std::uint16_t path_bytes, type_bytes, text_bytes, result_bytes;
  std::uint8_t kind, dtype, dims, flags;
  std::int8_t device_type, device_index;
  std::uint64_t reserved[2];
  std::int64_t sizes[8];
  std::uint64_t reserved_too;
};
static_assert(sizeof(Header) == 192);
static_assert(offsetof(Header, readers) == 56 && offsetof(Header, thread) == 72 &&
              offsetof(Header, path_bytes) == 86 && offsetof(Header, kind) == 94 &&
              offsetof(Header, device_index) == 99 && offsetof(Header, sizes) == 120);

}  // namespace torchtap::views::frames
