// Calls every module type of LibTorch in a program that knows nothing of torchtap, and writes what came of it
// for another program to compare with.
#include <torch/torch.h>

#include "tests/builtins/outcome.hpp"

namespace {

torch::serialize::OutputArchive archive;

template <class Holder, std::size_t N, class Make>
void write_type(const std::string& name, Make make, const std::array<at::Tensor, N>& given) {
  const auto made = builtins::direct<Holder>(make, false, std::make_index_sequence<N>());
  builtins::write(archive, name,
                  builtins::run(*made.module, {given.begin(), given.end()}, made.forward, true));
}

}  // namespace

#define CHECK_TYPE(Name, arguments, ...)                                                                 \
  write_type<torch::nn::Name>(                                                                           \
      #Name,                                                                                             \
      [](auto*) { return torch::nn::Name(std::make_shared<torch::nn::Name::ContainedType> arguments); }, \
      __VA_ARGS__)

#include "tests/builtins/table.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  builtins::all();
  archive.save_to(argv[1]);
  return 0;
}
