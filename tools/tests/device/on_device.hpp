#pragma once

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#if __has_include(<cuda_runtime_api.h>) && __has_include(<c10/cuda/CUDAFunctions.h>)
#include <c10/cuda/CUDAFunctions.h>
#define TORCHTAP_TEST_CUDA 1
#endif

#ifdef TORCHTAP_TEST_FUSED
#include <torchtap/cuda/fused_kernels.hpp>
#endif

/// The device that tests of devices run on, and a guard under which nothing may wait for it.
namespace torchtap_test {

/// What TORCHTAP_TEST_DEVICE names; without it the first CUDA device, or the CPU, which skips these tests.
inline at::Device device() {
  const char* const name = std::getenv("TORCHTAP_TEST_DEVICE");
  if (name != nullptr) return at::Device(name);
  return at::hasCUDA() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

/// A precondition of tests.
inline boost::test_tools::assertion_result has_device(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(std::getenv("TORCHTAP_TEST_DEVICE") != nullptr ||
                                             !device().is_cpu());
  result.message() << "LibTorch has no device here; TORCHTAP_TEST_DEVICE names one";
  return result;
}

/// Calls that wait for a CUDA device throw while it lives.
class NoWaiting {
 public:
  NoWaiting() {
#ifdef TORCHTAP_TEST_CUDA
    set(c10::cuda::SyncDebugMode::L_ERROR);
#endif
  }
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
  ~NoWaiting() {
#ifdef TORCHTAP_TEST_CUDA
    set(c10::cuda::SyncDebugMode::L_DISABLED);
#endif
  }

 private:
#ifdef TORCHTAP_TEST_CUDA
  static void set(c10::cuda::SyncDebugMode mode) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
#endif
};

/// The ways in which reductions read samples on the device: ATen's operations, and kernels of torchtap::cuda
/// where they can be had.
inline std::vector<bool> ways() {
#ifdef TORCHTAP_TEST_FUSED
  if (device().is_cuda()) return {false, true};
#endif
  return {false};
}

/// One of these ways, while it lives.
class Fused {
 public:
  explicit Fused(bool fused) {
#ifdef TORCHTAP_TEST_FUSED
    if (fused) torchtap::cuda::enable_fused_kernels();
    BOOST_TEST(torchtap::cuda::fused_kernels_enabled() == fused);
#else
    BOOST_TEST(!fused);
#endif
  }
  Fused(const Fused&) = delete;
  Fused& operator=(const Fused&) = delete;
  ~Fused() {
#ifdef TORCHTAP_TEST_FUSED
    torchtap::cuda::disable_fused_kernels();
#endif
  }
};

/// Convolutions give the same bits in each run while it lives.
class Deterministic {
 public:
  Deterministic() { at::globalContext().setDeterministicCuDNN(true); }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
  ~Deterministic() { at::globalContext().setDeterministicCuDNN(false); }
};

}  // namespace torchtap_test
