#pragma once

#include <pthread.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

/// The kernels of torchtap::cuda compiled for the CPU: a block is a group of threads, and blocks run one
/// after the other. What the source takes from CUDA is defined here.
namespace on_host {

struct Index {
  int x = 1, y = 1;
};

inline thread_local Index threadIdx, blockIdx;
inline Index blockDim, gridDim;
inline pthread_barrier_t barrier;
inline unsigned block_memory[1 << 14];

inline void __syncthreads() {
  pthread_barrier_wait(&barrier);
}
template <class T>
T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <class To, class From>
To same_bits(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int bits) {
  return same_bits<float>(bits);
}
inline double __longlong_as_double(long long bits) {
  return same_bits<double>(bits);
}
inline long long __double_as_longlong(double x) {
  return same_bits<long long>(x);
}
using std::fabs;
using std::floor;
using std::frexp;

/// Calls `kernel(arguments...)` in each thread of each block.
template <class Kernel, class... Arguments>
void launch(Kernel kernel, Index grid, Index block, Arguments... arguments) {
  gridDim = grid;
  blockDim = block;
  const int size = block.x * block.y;
  pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(size));
  std::vector<std::thread> threads;
  for (int t = 0; t < size; ++t) {
    threads.emplace_back([=] {
      threadIdx = {t % block.x, t / block.x};
      for (int y = 0; y < grid.y; ++y) {
        for (int x = 0; x < grid.x; ++x) {
          blockIdx = {x, y};
          kernel(arguments...);
          __syncthreads();
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  pthread_barrier_destroy(&barrier);
}

#define __device__
#define __shared__ static
#define KERNEL inline void
#define BLOCK_MEMORY unsigned* const block = block_memory

namespace of_float {
#define ELEMENT float
#include "kernels_on_host.inc"
#undef ELEMENT
}  // namespace of_float

namespace of_bfloat16 {
#define ELEMENT unsigned short
#define BFLOAT16
#include "kernels_on_host.inc"
#undef BFLOAT16
#undef ELEMENT
}  // namespace of_bfloat16

#undef BLOCK_MEMORY
#undef KERNEL
#undef __shared__
#undef __device__

}  // namespace on_host
