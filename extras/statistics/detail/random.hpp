#pragma once

/// Generates random numbers without advancing the program's generators.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <torchtap/base/split_mix.hpp>

namespace torchtap::statistics::detail {

/// A generator of our own, so that recording never advances the program's: SplitMix64 (Steele, Lea & Flood
/// 2014). It has one word of state, and gives the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() noexcept { return base::split_mix(state_ += base::kGolden); }
  /// Uniform in [0, bound), without bias and mostly without a division (Lemire 2019); `bound` is positive.
  std::uint64_t below(std::uint64_t bound) noexcept {
    Wide product = Wide{next()} * bound;
    if (static_cast<std::uint64_t>(product) < bound) {   // rare
      const std::uint64_t unfair = (0 - bound) % bound;  // as many products would bias the result
      while (static_cast<std::uint64_t>(product) < unfair) product = Wide{next()} * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

  /// Lets all further numbers depend on `number`, too.
  void mix(std::uint64_t number) noexcept {
    state_ ^= number;
    state_ = next();
  }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(state_);
  }

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t state_;
};

/// A number that depends on how rows of a tensor on the CPU begin; 0 for any other, which would have to be
/// waited for. Generators of one seed that are mixed with it are independent if their data differ, as in
/// parts that are merged later (ranks, files).
std::uint64_t fingerprint(const at::Tensor& rows);

}  // namespace torchtap::statistics::detail
