#pragma once

// What all messages of a stream have in common.

#include <cstdint>
#include <string>

#include <torchtap/views/frames/detail/header.hpp>

namespace torchtap::views::stream::detail {

using frames::detail::aligned;
using frames::detail::Header;
using frames::detail::kAlign;
using frames::detail::kFrameMagic;

inline constexpr std::uint32_t kPaddingMagic = 0x44505454;  // "TTPD": no frame up to the end of the arena
inline constexpr std::uint16_t kVersion = 1;

/// Appends a number as it lies in memory.
template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace torchtap::views::stream::detail
