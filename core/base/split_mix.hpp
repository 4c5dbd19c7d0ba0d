#pragma once

/// A number scrambled so that each of its bits changes half of the others.

#include <cstdint>

namespace torchtap::base {

/// 2^64 divided by the golden ratio: steps of it never come close to each other.
inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
constexpr std::uint64_t split_mix(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace torchtap::base
