// Recorders of a model on a device, by keys and masks that a context names there.
#include <torchtap/recorders/recorders.hpp>

#include "rows.hpp"

BOOST_AUTO_TEST_SUITE(recorders_on_a_device)

using namespace torchtap_test;
using torchtap::recorders::ForwardOutput;
using torchtap::recorders::RecorderOptions;

namespace {

/// Of one seed. Its tensors are exchanged, because `to` takes only devices that LibTorch knows.
torch::nn::Sequential model(const at::Device& device) {
  torch::manual_seed(1);
  torch::nn::Linear first(4, 6), last(6, 2);
  for (auto* const linear : {&first, &last}) {
    (*linear)->weight = (*linear)->weight.detach().to(device);
    (*linear)->bias = (*linear)->bias.detach().to(device);
  }
  return torch::nn::Sequential(first, torch::nn::Tanh(), last);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_there_is_recorded_as_here) {
  const Any sums = by("key", Series(Mean(MeanOptions().over({0})), Count(CountOptions().over({0})))),
            masked = where("mask", Moments(MomentsOptions().over({0}))),
            nested = by("key", where("mask", LogHistogram(LogHistogramOptions().over_all(true))));
  for (const Any& one : {sums, masked, nested}) {
    ForwardOutput on_cpu{one}, on_device{one},
        moved(RecorderOptions().reduction(one).device(at::kCPU));  // with keys on the CPU
    torch::nn::Sequential of_cpu = model(at::kCPU), of_device = model(fake::device()),
                          other = model(fake::device());
    on_cpu.attach(of_cpu);
    on_device.attach(of_device);
    moved.attach(other);
    for (int step = 0; step < 4; ++step) {
      const at::Tensor x = torch::randn({8, 4}), key = torch::randint(-1, 3, {8}, at::kLong),
                       mask = torch::rand({8}).lt(0.7);
      {
        const Context named({{"key", key}, {"mask", mask}});
        of_cpu->forward(x);
        other->forward(here(x));
      }
      const Context named({{"key", here(key)}, {"mask", here(mask)}});
      of_device->forward(here(x));
    }
    BOOST_TEST_CONTEXT(one.describe()) {
      for (const char* const path : {"0", "1", "2"}) {
        BOOST_TEST(on_device.at(path).samples() == 4);
        check_same(on_device.at(path).results(), on_cpu.at(path).results());
        for (const auto& [name, tensor] : moved.at(path).results())
          BOOST_TEST(close(tensor, on_cpu.at(path).results().at(name), 1e-6), name);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
