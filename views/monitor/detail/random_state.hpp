#pragma once

// The state of the CPU's generator as a ring has it.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torchtap::views::monitor::detail {

/// A Mersenne twister, and halves of pairs of normal numbers.
struct RandomState {
  std::uint64_t seed;
  std::int32_t left;  // numbers before the twister makes new ones
  std::uint32_t next;
  std::uint8_t seeded, has_float, has_double, unused[5];
  float next_float;
  std::uint32_t unused_too;
  double next_double;
  std::uint32_t state[624];
};
static_assert(sizeof(RandomState) == 2536);

/// Copies the state of LibTorch's default generator. Allocates nothing.
void take_random_state(RandomState& state) noexcept;
/// The state as the generator's `get_state` has it; undefined if it is invalid, because using it would read
/// outside of its array.
at::Tensor state_tensor(const RandomState& state);
/// Sets LibTorch's default generator. Throws `c10::ValueError` if the bytes are no state.
void set_random_state(const at::Tensor& state);

}  // namespace torchtap::views::monitor::detail
