#pragma once

// Compiles and launches kernels with NVRTC and the CUDA driver, which are loaded while the program runs.

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/cuda/detail/launcher.hpp>

namespace torchtap::cuda::detail {

/// NVRTC and the CUDA driver, as far as kernels need them. They are loaded while the program runs: torchtap
/// compiles without CUDA.
class Driver final : public Launcher {
 public:
  /// Loads both once. Throws `c10::Error` that says which is missing.
  static const Driver& instance();
  ~Driver() override;

  void* load(const std::string& source, const std::vector<std::string>& options,
             const std::vector<const char*>& kernels, c10::DeviceIndex device) const override;
  void launch(void* module, const char* kernel, Extent grid, Extent block, unsigned shared_bytes,
              c10::DeviceIndex device, void** arguments) const override;
  int multiprocessors(c10::DeviceIndex device) const override;
  std::uint64_t capture(c10::DeviceIndex device) const override;

 private:
  struct Calls;
  struct Context;

  Driver();
  void* context(c10::DeviceIndex device) const;
  void* function(void* module, const char* kernel) const;
  int attribute(int which, c10::DeviceIndex device) const;
  void check(int result, const char* call) const;

  std::unique_ptr<const Calls> calls_;
  mutable std::mutex mutex_;
  mutable std::map<c10::DeviceIndex, void*> contexts_;
  mutable std::map<std::pair<void*, std::string>, void*> functions_;
};

}  // namespace torchtap::cuda::detail
