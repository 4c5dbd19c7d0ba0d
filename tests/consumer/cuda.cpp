#include <c10/util/Exception.h>

#include <iostream>

#include <torchtap/cuda/fused_kernels.hpp>

// Where there is no device, the error says what is missing, and nothing changes.
int main() {
  try {
    torchtap::cuda::enable_fused_kernels();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    std::cout << text << '\n';
    return text.find("torchtap::cuda::enable_fused_kernels: ") == 0 &&
                   !torchtap::cuda::fused_kernels_enabled()
               ? 0
               : 1;
  }
  return torchtap::cuda::fused_kernels_enabled() ? 0 : 1;
}
