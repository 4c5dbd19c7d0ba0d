// Writes the kernels' source, for the test to include.
#include <fstream>

#include <torchtap/cuda/detail/source.hpp>

int main(int, char** arguments) {
  std::ofstream file(arguments[1]);
  file << torchtap::cuda::detail::kSource;
  return file.good() ? 0 : 1;
}
