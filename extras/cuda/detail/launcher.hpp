#pragma once

// Compiles and launches kernels: CUDA's driver, or the host in tests.

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::cuda::detail {

/// Blocks of a grid, or threads of a block.
struct Extent {
  unsigned x = 1, y = 1;
};

/// Compiles and launches kernels.
class Launcher {
 public:
  virtual ~Launcher() = default;

  /// Compiles `source` with options such as "-DELEMENT=float" for a device, and loads these kernels there, so
  /// that a launch has nothing left to load. Throws `c10::Error` with the compiler's messages.
  virtual void* load(const std::string& source, const std::vector<std::string>& options,
                     const std::vector<const char*>& kernels, c10::DeviceIndex device) const = 0;
  /// Launches a kernel of a loaded module on the device's current stream. `arguments` are the addresses of
  /// its arguments. Throws `c10::Error` if the device refuses it.
  virtual void launch(void* module, const char* kernel, Extent grid, Extent block, unsigned shared_bytes,
                      c10::DeviceIndex device, void** arguments) const = 0;
  virtual int multiprocessors(c10::DeviceIndex device) const = 0;
  /// The number of the capture that the device's current stream is in; 0 if it is in none.
  virtual std::uint64_t capture(c10::DeviceIndex device) const = 0;
};

}  // namespace torchtap::cuda::detail
