#pragma once

#include <cstdint>
#include <string>

#include <torchtap/cuda/detail/launcher.hpp>

#include "../on_host.hpp"

/// Launches the kernels of pages on the fake devices, where they run on the CPU when their turn comes.
namespace torchtap_test::fake {

/// The kernels for one type of elements and some parts.
struct Module {
  void (*add_one)(on_host::Index grid, on_host::Index block, const void* one);
  void (*add_many)(on_host::Index grid, on_host::Index block, const void* all);
  void (*take)(on_host::Index block, long long* page, long long* to);
  std::size_t one, many;  // bytes of the arguments
};
bool add_module(const std::string& element, int parts, Module module);

/// Knows elements of float32, float64 and bfloat16, and the kernels of pages only. Two multiprocessors, so
/// that small samples have several chunks, too.
const torchtap::cuda::detail::Launcher& launcher();

/// Whether launches are refused from now on, or accepted and not done.
void refuse_launches(bool refuse);
void lose_launches(bool lose);

/// Launches so far.
std::int64_t launches();

}  // namespace torchtap_test::fake
