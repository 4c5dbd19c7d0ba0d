// Records every module of four networks that know nothing of torchtap: examples/zoo is plain LibTorch, and
// linking torchtap::transparent in CMakeLists.txt is all that makes its modules visible.

#include <torch/torch.h>

#include <cstdio>
#include <map>
#include <string>

#include <torchtap/torchtap.hpp>
#include <torchtap/transparent/transparent.hpp>

#include "zoo/gpt.hpp"
#include "zoo/mobilenet.hpp"
#include "zoo/resnet.hpp"
#include "zoo/unet.hpp"

namespace tap = torchtap;

namespace {

/// Prints statistics of `net`'s modules, by type and for those at `shown`. Returns false if a check fails.
template <class Net>
bool record(const char* name, Net net, const at::Tensor& input, const tap::selectors::Selector& shown) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const at::Tensor bare = net(input);

  tap::recorders::ForwardOutput outputs(
      tap::reductions::Moments(tap::reductions::MomentsOptions().over_all(true)));
  outputs.attach(net, tap::selectors::reachable());
  const at::Tensor recorded = net(input);
  outputs.detach();

  std::map<std::string, std::pair<int, std::int64_t>> types;
  bool all_called = true;
  for (const auto& module : outputs) {
    auto& [modules, calls] = types[module.type()];
    ++modules;
    calls += module.samples();
    all_called = all_called && module.samples() > 0;
  }
  std::printf("\n%s: %d modules\n", name, static_cast<int>(outputs.size()));
  for (const auto& [type, counts] : types) {
    std::printf("  %-22s %3d modules %4d calls\n", type.c_str(), counts.first,
                static_cast<int>(counts.second));
  }
  for (const auto& module : tap::selectors::select(tap::selectors::modules(net).vector(), shown)) {
    const auto& moments = outputs.at(module.path());
    std::printf("  %-22s mean %8.4f, variance %8.4f\n", module.path().c_str(),
                moments.tensor("mean").template item<double>(),
                moments.tensor("variance").template item<double>());
  }

  // We hold the root's output, so compare with it.
  const double mean = outputs.at("").tensor("mean").template item<double>();
  const bool right = recorded.equal(bare) && all_called &&
                     std::abs(mean - bare.to(torch::kDouble).mean().template item<double>()) < 1e-6;
  if (!right) std::printf("  WRONG\n");
  return right;
}

}  // namespace

int main() {
  for (const auto& problem : tap::transparent::check()) std::printf("%s\n", problem.c_str());
  torch::manual_seed(0);
  using tap::selectors::names;
  const bool resnet = record("ResNet-18", zoo::ResNet18(zoo::ResNet18Options().num_classes(10).width(16)),
                             torch::randn({2, 3, 64, 64}), names("layer?.?", "fc"));
  const bool mobilenet = record("MobileNet", zoo::MobileNet<>(3, 10, 8), torch::randn({2, 3, 32, 32}),
                                names("blocks.?", "head"));
  const bool unet = record("UNet", zoo::UNet(zoo::UNetOptions(1, 2).width(8).depth(3)),
                           torch::randn({2, 1, 28, 28}), names("downs.?", "ups.?"));
  const bool gpt = record("GPT", zoo::GPT(zoo::GPTOptions(64).context(32).layers(3).heads(4).width(32)),
                          torch::randint(64, {2, 32}), names("blocks.?", "blocks.?.attn", "head"));
  return resnet && mobilenet && unet && gpt ? 0 : 1;
}
