// Recorders on a model that is on a device: the same bits, without waiting, and files of CPU tensors.
#include <boost/test/data/test_case.hpp>
#include <torch/torch.h>

#include <torchtap/torchtap.hpp>

#include "fashion_mnist/idx.hpp"
#include "on_device.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;
namespace utf = boost::unit_test;

namespace {

const std::string kFashionMnist = "/usr/share/datasets/fashion-mnist";

nn::Sequential classifier() {
  torch::manual_seed(0);
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 8, 3).stride(2)), nn::BatchNorm2d(8), nn::ReLU(),
                       nn::Conv2d(nn::Conv2dOptions(8, 16, 3).stride(2)), nn::ReLU(), nn::Flatten(),
                       nn::Linear(16 * 6 * 6, 32), nn::ReLU(), nn::Linear(32, 10));
  model->to(device());
  return model;
}

/// The first images of Fashion-MNIST, or noise where it is not installed, and their labels.
Dataset images(std::int64_t number) {
  if (fs::exists(kFashionMnist)) {
    auto data = read_training_set(kFashionMnist, number);
    return {data.images.to(device()), data.labels.to(device())};
  }
  torch::manual_seed(1);
  return {torch::randn({number, 1, 28, 28}).to(device()),
          torch::randint(10, {number}, torch::kLong).to(device())};
}

/// The loss of three training steps, and the parameters afterwards.
std::vector<at::Tensor> trained(nn::Sequential& model, const Dataset& data) {
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  std::vector<at::Tensor> seen;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(model->forward(data.images), data.labels);
    loss.backward();
    for (const auto& parameter : model->parameters()) seen.push_back(parameter.grad().clone());
    optimizer.step();
    seen.push_back(loss.detach());
  }
  for (const auto& parameter : model->parameters()) seen.push_back(parameter.detach().clone());
  return seen;
}

recorders::RecorderOptions with(const std::string& reductions) {
  return recorders::RecorderOptions().reduction(
      reductions::parse(reductions, reductions::ParseOptions().over({0})));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(device_recorders, *utf::precondition(has_device))

BOOST_DATA_TEST_CASE(training_with_recorders_has_the_same_bits, utf::data::make(ways()), fused) {
  const Fused way(fused);
  const Deterministic deterministic;
  const auto data = images(64);
  auto plain = classifier(), watched = classifier();
  const auto want = trained(plain, data);
  {
    recorders::ForwardOutput kept, statistics(with("moments, histogram:32, quantiles, top_k:3"));
    recorders::ForwardInput inputs(with("mean"));
    recorders::BackwardOutput gradients(with("norm, abs_max"));
    recorders::BackwardInput input_gradients(with("moments"));
    for (auto* recorder : std::initializer_list<recorders::Recorder*>{&kept, &statistics, &inputs, &gradients,
                                                                      &input_gradients})
      recorder->attach(watched);
    const auto got = trained(watched, data);
    BOOST_REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(got[i].equal(want[i]), "tensor " << i);
    BOOST_TEST(kept.at("8").samples() == 3);
    BOOST_TEST(gradients.at("0").samples() > 0);
  }
}

BOOST_DATA_TEST_CASE(a_training_step_with_recorders_waits_for_nothing, utf::data::make(ways()), fused) {
  const Fused way(fused);
  const auto data = images(64);
  auto model = classifier();
  trained(model, data);  // LibTorch's own first step may wait
  recorders::ForwardOutput kept, statistics(with("moments, min, max, count, histogram:32:-4:4"));
  recorders::BackwardOutput gradients(with("norm, abs_max"));
  kept.attach(model);
  statistics.attach(model);
  gradients.attach(model);
  const NoWaiting strict;
  for (int step = 0; step < 3; ++step) {
    BOOST_TEST(error_of([&] {
                 torch::nn::functional::cross_entropy(model->forward(data.images), data.labels).backward();
               }) == "");
  }
}

BOOST_AUTO_TEST_CASE(samples_are_kept_where_they_were_or_where_asked) {
  const auto data = images(16);
  auto model = classifier();
  recorders::ForwardOutput here, on_cpu(recorders::RecorderOptions().device(at::kCPU)),
      half(recorders::RecorderOptions().device(at::kCPU).dtype(at::kHalf)),
      alias(recorders::RecorderOptions().capture(recorders::Capture::alias));
  for (auto* recorder : {&here, &on_cpu, &half, &alias}) recorder->attach(model);
  const auto output = model->forward(data.images).detach();
  const auto want = output.clone();
  BOOST_TEST(here.at("8").tensors()[0].device() == device());
  BOOST_TEST(here.at("8").tensors()[0].equal(want));
  BOOST_TEST(alias.at("8").tensors()[0].data_ptr() == output.data_ptr());
  BOOST_TEST(on_cpu.at("8").tensors()[0].device().is_cpu());
  BOOST_TEST(on_cpu.at("8").tensors()[0].equal(want.cpu()));
  BOOST_TEST(half.at("8").tensors()[0].equal(want.cpu().to(at::kHalf)));
  output.add_(1);
  BOOST_TEST(here.at("8").tensors()[0].equal(want));
}

BOOST_AUTO_TEST_CASE(files_hold_cpu_tensors) {
  const TemporaryDirectory folder;
  const auto data = images(16);
  auto model = classifier();
  recorders::ForwardOutput kept, statistics(with("moments")),
      spooled(recorders::RecorderOptions().spool(folder / "spooled", storage::SpoolOptions().mkdir(true)));
  const auto saving = storage::SaveOptions().mkdir(true);
  kept.attach(model);
  statistics.attach(model);
  spooled.attach(model);
  std::vector<at::Tensor> want;
  for (int i = 0; i < 3; ++i) want.push_back(model->forward(data.images).detach().cpu());
  kept.save(folder / "kept", saving);
  statistics.save(folder / "statistics", saving);
  spooled.save(folder / "spooled");
  for (const char* name : {"kept", "spooled"}) {
    const auto recording = storage::load(folder / name);
    const auto tensors = recording.at("8").tensors();
    BOOST_REQUIRE(tensors.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      BOOST_TEST(tensors[i].device().is_cpu());
      BOOST_TEST(tensors[i].equal(want[i]));
    }
  }
  const auto mean = storage::load(folder / "statistics").at("8").tensor("mean");
  BOOST_TEST(mean.device().is_cpu());
  BOOST_TEST(close(mean, at::cat(want).to(at::kDouble).mean(0), 1e-6));
  // The state goes on from the file.
  recorders::ForwardOutput resumed(with("moments"));
  resumed.attach(model);
  model->forward(data.images);
  resumed.save(folder / "more", saving);
  storage::merge({folder / "statistics", folder / "more"}, folder / "merged", reductions::restore,
                 storage::MergeOptions().save(saving));
  BOOST_TEST(storage::load(folder / "merged").at("8").samples() == 4);
}

BOOST_AUTO_TEST_CASE(hooks_replace_outputs_on_the_device) {
  const auto data = images(4);
  auto model = classifier();
  const auto want = model->forward(data.images);
  {
    const auto handle =
        hooks::attach(model::find(*model, "7"), hooks::Kind::forward_output,
                      [](hooks::Event& event) { event.outputs()[0] = at::zeros_like(event.outputs()[0]); });
    const auto bias = model[8]->as<nn::Linear>()->bias;
    BOOST_TEST(model->forward(data.images).equal(bias.expand({4, 10})));
  }
  BOOST_TEST(model->forward(data.images).equal(want));
}

BOOST_AUTO_TEST_SUITE_END()
