#pragma once

// Compiles and launches kernels with NVRTC and the CUDA driver, which are loaded while the program runs.

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace torchtap::cuda::detail {

/// Blocks of a grid, or threads of a block.
struct Extent {
  unsigned x = 1, y = 1;
};

/// NVRTC and the CUDA driver, as far as kernels need them. They are loaded while the program runs: torchtap
/// compiles without CUDA.
class Driver {
 public:
  /// Loads both once. Throws `c10::Error` that says which is missing.
  static const Driver& instance();
  ~Driver();

  /// Compiles `source` with options such as "-DELEMENT=float" for a device, and loads it there. Throws
  /// `c10::Error` with the compiler's messages.
  void* load(const char* source, const std::vector<std::string>& options, c10::DeviceIndex device) const;
  /// Launches a kernel of a loaded module on the device's current stream. `arguments` are the addresses of
  /// its arguments. Throws `c10::Error` if the device refuses it.
  void launch(void* module, const char* kernel, Extent grid, Extent block, unsigned shared_bytes,
              c10::DeviceIndex device, void** arguments) const;
  int multiprocessors(c10::DeviceIndex device) const;

 private:
  struct Calls;
  struct Context;

  Driver();
  void* context(c10::DeviceIndex device) const;
  int attribute(int which, c10::DeviceIndex device) const;
  void check(int result, const char* call) const;

  std::unique_ptr<const Calls> calls_;
  mutable std::mutex mutex_;
  mutable std::map<c10::DeviceIndex, void*> contexts_;
};

}  // namespace torchtap::cuda::detail
