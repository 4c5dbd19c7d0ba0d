#pragma once

// The constants and helpers that all parts of a stream share.

#include <chrono>
#include <cstdint>
#include <string>

#include <torchtap/views/frames/descriptor.hpp>
#include <torchtap/views/frames/header.hpp>

namespace torchtap::views::stream::detail {

using frames::aligned;
using frames::Descriptor;
using frames::Header;
using frames::kAlign;
using frames::kFrameMagic;
using frames::kVersion;
using frames::Mapping;

/// Throws a `c10::Error`: "views::stream: cannot WHAT: the system's words".
[[noreturn]] inline void system_error(const std::string& what, int error) {
  frames::system_error("views::stream", what, error);
}

using Moment = std::chrono::steady_clock::time_point;
/// The moment `after` from now, or the last one there is.
inline Moment deadline_after(std::chrono::nanoseconds after) {
  const Moment now = std::chrono::steady_clock::now();
  return after >= Moment::max() - now ? Moment::max() : now + after;
}

}  // namespace torchtap::views::stream::detail
