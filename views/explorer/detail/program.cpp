// The program that runs, as Linux tells it.
#include <fstream>

#include <torchtap/views/explorer/detail/program.hpp>

namespace torchtap::views::explorer::detail {

std::string program_name() {
  std::ifstream in("/proc/self/comm");
  std::string name;
  std::getline(in, name);
  return name;
}

}  // namespace torchtap::views::explorer::detail
