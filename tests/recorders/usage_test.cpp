#include <torch/torch.h>

#include <boost/test/unit_test.hpp>
#include <torchtap/torchtap.hpp>

namespace tap = torchtap;

BOOST_AUTO_TEST_CASE(usage) {
  torch::nn::Sequential model(torch::nn::Linear(784, 100), torch::nn::ReLU(), torch::nn::Linear(100, 50),
                              torch::nn::ReLU(), torch::nn::Linear(50, 10));
  tap::recorders::ForwardPre inputs(tap::reductions::Sum{});
  inputs.children(*model, tap::selectors::indices({2, 3}));
  bool interesting = true;
  tap::recorders::ForwardOutput peaks(
      tap::recorders::Options()
          .condition([&] { return interesting; })
          .reduction([](const at::Tensor& a, const at::Tensor& b) { return at::max(a, b); }));
  peaks.modules(*model, tap::selectors::types<torch::nn::Linear, torch::nn::ReLU>());
  tap::recorders::BackwardOutput gradients;
  gradients.modules(*model, tap::selectors::types<torch::nn::Linear>() && !tap::selectors::names("0"));
  for (int step = 0; step < 1000; ++step) model->forward(torch::randn({1, 784})).sum().backward();
  BOOST_TEST(inputs.size() == 2);
  BOOST_TEST(inputs[0].name() == "2");
  BOOST_TEST(inputs[0].type() == "Linear");
  BOOST_TEST(inputs[0].samples() == 1000);
  BOOST_TEST((inputs[0].tensor().sizes() == at::IntArrayRef{1, 100}));
  BOOST_TEST(peaks.size() == 5);
  BOOST_TEST(gradients[1].tensors().size() == 1000u);
  inputs.apply([](const at::Tensor& sum) { return sum * 2; });
  inputs.apply_sample([](const at::Tensor& sum, int64_t samples) { return sum / (2 * samples); });
  inputs.save("analysis", tap::storage::SaveOptions().mkdir(true).overwrite(true));
  auto recording = tap::storage::load("analysis");
  BOOST_TEST(recording.at("2").tensor().equal(inputs[0].tensor()));
}
