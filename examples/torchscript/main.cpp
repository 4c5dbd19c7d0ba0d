// Records a file exported from Python: the maximum of each channel of each ReLU's output, which shows
// channels that are never active.
//
// usage: torchscript MODEL.pt        (from torch.jit.script or torch.jit.trace, takes [N, 3, H, W])

#include <torch/script.h>
#include <torch/torch.h>

#include <iomanip>
#include <iostream>

#include <torchtap/torchtap.hpp>

namespace tap = torchtap;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: torchscript MODEL.pt\n";
    return 2;
  }
  torch::jit::Module model = torch::jit::load(argv[1]);
  model.eval();

  tap::recorders::ForwardOutput maps(tap::reductions::Max(tap::reductions::MaxOptions().over({0, 2, 3})));
  maps.attach(model, tap::selectors::types("ReLU"));  // types by name
  tap::recorders::ForwardOutput whole;
  whole.attach(model, tap::selectors::names(""));

  torch::NoGradGuard no_grad;
  torch::manual_seed(0);
  at::Tensor last;
  for (int batch = 0; batch < 4; ++batch) last = model.forward({torch::randn({4, 3, 64, 64})}).toTensor();

  for (const auto& map : maps) {
    const auto dead = map.tensor().eq(0).sum().item<int64_t>();
    std::cout << std::left << std::setw(20) << map.path() << map.samples() << " calls, " << dead << " of "
              << map.tensor().numel() << " channels never active\n";
  }
  return whole[0].samples() == 4 && torch::equal(whole[0].tensors().back(), last) && maps.samples() > 0 ? 0
                                                                                                        : 1;
}
