#pragma once

// Constants and helpers of all parts of a stream.

#include <cstdint>
#include <string>

#include <torchtap/views/frames/detail/descriptor.hpp>
#include <torchtap/views/frames/detail/header.hpp>

namespace torchtap::views::stream::detail {

using frames::detail::aligned;
using frames::detail::Descriptor;
using frames::detail::Header;
using frames::detail::kAlign;
using frames::detail::kFrameMagic;
using frames::detail::kVersion;
using frames::detail::Mapping;

/// Throws a `c10::Error`: "views::stream: cannot WHAT: the system's words".
[[noreturn]] inline void system_error(const std::string& what, int error) {
  frames::detail::system_error("views::stream", what, error);
}

/// Appends a number as it lies in memory.
template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace torchtap::views::stream::detail
