#pragma once

// Ports of calls, and edges between them: the path of the data.

#include <cstdint>
#include <tuple>

namespace torchtap::views::explorer::detail {

/// A port of a call. Inside of the call itself, ports that data comes from are its inputs and ports that data
/// goes to are its outputs; for the call around it is the other way round.
struct Port {
  /// A tensor that a call used without getting it as an argument, or left behind without returning it.
  static constexpr std::int32_t extra = -1;
  /// The origin of tensors that no operation was seen making.
  static constexpr std::int32_t unknown = -2;

  std::int32_t call = 0;
  std::int32_t port = 0;

  friend bool operator<(const Port& a, const Port& b) noexcept {
    return std::tie(a.call, a.port) < std::tie(b.call, b.port);
  }
  friend bool operator==(const Port& a, const Port& b) noexcept {
    return a.call == b.call && a.port == b.port;
  }
};

/// Data flows from one port to another, inside of the call `caller`.
struct Edge {
  std::int32_t caller = 0;
  Port from, to;

  friend bool operator<(const Edge& a, const Edge& b) noexcept {
    return std::tie(a.caller, a.from, a.to) < std::tie(b.caller, b.from, b.to);
  }
  friend bool operator==(const Edge& a, const Edge& b) noexcept {
    return a.caller == b.caller && a.from == b.from && a.to == b.to;
  }

  /// "data", "hidden", "captured" or "unknown".
  const char* kind() const noexcept {
    if (from.port == Port::unknown) return "unknown";
    if (to.port == Port::extra || (from.port == Port::extra && from.call == caller)) return "captured";
    return from.port == Port::extra ? "hidden" : "data";
  }
};

}  // namespace torchtap::views::explorer::detail
