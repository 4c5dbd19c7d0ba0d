#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TORCHTAP_TEST_THREADS 1
#include <pthread.h>

#include <thread>
#else
#include <ucontext.h>
#endif

/// What the kernels of torchtap::cuda take from CUDA, for the CPU: a block is a group of fibers that run one
/// after another up to the next `__syncthreads`, or of threads where sanitizers do not know fibers; blocks
/// run one after another. Include the kernels in a namespace of `on_host`, once for each type of elements.
namespace on_host {

struct Index {
  int x = 1, y = 1;
};

#ifdef TORCHTAP_TEST_THREADS
inline thread_local Index threadIdx, blockIdx;
inline pthread_barrier_t barrier;
#else
inline Index threadIdx, blockIdx;
#endif
inline Index blockDim, gridDim;
inline unsigned block_memory[1 << 14];
inline bool last_block_first = false;  // a device runs blocks in any order

/// The block that is the `i`-th to run.
inline Index block_at(int i) {
  const int block = last_block_first ? gridDim.x * gridDim.y - 1 - i : i;
  return {block % gridDim.x, block / gridDim.x};
}

#ifdef TORCHTAP_TEST_THREADS

inline void __syncthreads() {
  pthread_barrier_wait(&barrier);
}

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
      for (int i = 0; i < grid.x * grid.y; ++i) {
        blockIdx = block_at(i);
        kernel(arguments...);
        __syncthreads();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  pthread_barrier_destroy(&barrier);
}

#else

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done = false;
};

inline ucontext_t scheduler;
inline std::vector<Fiber> fibers;
inline std::size_t running = 0;
inline void (*body)(const void*) = nullptr;
inline const void* body_data = nullptr;

inline void __syncthreads() {
  swapcontext(&fibers[running].context, &scheduler);
}

inline void fiber_main() {
  body(body_data);
  fibers[running].done = true;
  swapcontext(&fibers[running].context, &scheduler);
}

/// Calls `kernel(arguments...)` in each thread of each block.
template <class Kernel, class... Arguments>
void launch(Kernel kernel, Index grid, Index block, Arguments... arguments) {
  gridDim = grid;
  blockDim = block;
  const auto size = static_cast<std::size_t>(block.x * block.y);
  if (fibers.size() < size) fibers.resize(size);
  const auto call = [&] { kernel(arguments...); };
  body = [](const void* data) { (*static_cast<const decltype(call)*>(data))(); };
  body_data = &call;
  for (int i = 0; i < grid.x * grid.y; ++i) {
    blockIdx = block_at(i);
    for (std::size_t t = 0; t < size; ++t) {
      Fiber& fiber = fibers[t];
      fiber.stack.resize(64 << 10);
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack = {fiber.stack.data(), 0, fiber.stack.size()};
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, &fiber_main, 0);
    }
    for (bool left = true; left;) {
      left = false;
      for (running = 0; running < size; ++running) {
        if (fibers[running].done) continue;
        threadIdx = {static_cast<int>(running) % block.x, static_cast<int>(running) / block.x};
        swapcontext(&scheduler, &fibers[running].context);
        left = left || !fibers[running].done;
      }
    }
  }
}

#endif

inline void __threadfence() {}
template <class T>
T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T* to, T value) {
  return __atomic_exchange_n(to, value, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicCAS(T* to, T expected, T value) {
  __atomic_compare_exchange_n(to, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
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
using std::pow;

}  // namespace on_host

#define __device__
#define __shared__ static
#define KERNEL inline void
#define BLOCK_MEMORY unsigned* const block = on_host::block_memory
