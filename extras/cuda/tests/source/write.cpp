// Writes the kernels' source, for the test to include.
#include <fstream>

#include <torchtap/cuda/detail/source.hpp>

int main(int, char** arguments) {
  std::ofstream file(arguments[1]);
  using namespace torchtap::cuda::detail;
  file << kNumbers << kKernels << kLedger;
  return file.good() ? 0 : 1;
}
