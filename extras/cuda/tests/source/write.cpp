// Writes the kernels' source, for tests to include, and as it is compiled for devices.
#include <fstream>
#include <string>

#include <torchtap/cuda/detail/source.hpp>

int main(int, char** arguments) {
  using namespace torchtap::cuda::detail;
  const std::string all = arguments[1];
  std::ofstream(all) << kNumbers << kKernels << kLedger;
  std::ofstream(all + ".kernels.cu") << kNumbers << kKernels;
  std::ofstream(all + ".ledger.cu") << kNumbers << kLedger;
  return std::ifstream(all + ".ledger.cu").good() ? 0 : 1;
}
