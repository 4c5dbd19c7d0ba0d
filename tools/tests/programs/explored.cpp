// The model of foreign.cpp in a program that is built with torchtap: what its explorer sees is what `torchtap
// preload --explore` has to see in foreign.cpp. BatchNorm and the model's own types are compiled into that
// program, and cannot be seen there.
#include <torch/torch.h>

#include <iostream>

#include <torchtap/selectors/selectors.hpp>
#include <torchtap/views/explorer/explorer.hpp>

#include "zoo/resnet.hpp"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  at::set_num_threads(1);
  torch::manual_seed(3);
  zoo::ResNet18 net(zoo::ResNet18Options().num_classes(10).width(8));
  net->eval();
  namespace explorer = torchtap::views::explorer;
  explorer::Explorer page(explorer::ExplorerOptions().every(1).save(argv[1]));
  namespace selectors = torchtap::selectors;
  // Entries of a Sequential can be seen, whatever they are.
  page.attach(*net, !selectors::types<torch::nn::BatchNorm2d>() || selectors::names("*.downsample.*"));
  for (int i = 0; i < 3; ++i)
    net(torch::linspace(-1, 1, 4 * 3 * 32 * 32).view({4, 3, 32, 32}) * (i + 1)).sum().backward();
  for (const std::string& error : page.errors()) std::cerr << error << '\n';
  return page.errors().empty() ? 0 : 1;
}
