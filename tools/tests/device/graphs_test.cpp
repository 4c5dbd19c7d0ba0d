// Recorders and CUDA graphs: replays are samples like any other, and what cannot be captured is refused.
// Tests of fake devices say the same (extras/cuda/tests/cuda_pages); here are a device's own graphs and
// streams.
#include <torch/torch.h>

#include <torchtap/torchtap.hpp>

#include "extras/cuda/tests/page_cases.hpp"
#include "on_device.hpp"
#include "tests/support.hpp"

#if defined(TORCHTAP_TEST_CUDA) && defined(TORCHTAP_TEST_FUSED)
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;

namespace {

/// What a real module gives, folded by plain LibTorch in float64.
struct Served {
  Served() : input(torch::zeros({64, 48}, device())), stream(c10::cuda::getStreamFromPool()) {
    torch::manual_seed(0);
    model = nn::Sequential(nn::Linear(48, 80), nn::ReLU(), nn::Linear(80, 24));
    model->to(device());
  }
  at::Tensor next() {
    input.copy_(torch::randn({64, 48}, device()) * static_cast<double>(seen.size() % 7 + 1));
    return input;
  }
  void run() {
    const at::NoGradGuard no_gradients;
    const c10::cuda::CUDAStreamGuard guard(stream);
    seen.push_back(model->forward(next()).clone());
  }
  /// Captures a forward; the error that it threw, if any.
  std::string capture() {
    const at::NoGradGuard no_gradients;
    const c10::cuda::CUDAStreamGuard guard(stream);
    stream.synchronize();
    graph.capture_begin();
    marked.fill_(1);
    const std::string error = error_of([&] { output = model->forward(input); });
    graph.capture_end();
    return error;
  }
  void replay() {
    const c10::cuda::CUDAStreamGuard guard(stream);
    next();
    graph.replay();
    if (output.defined()) seen.push_back(output.clone());
  }
  core::Results want(const std::string& text, const std::vector<std::int64_t>& over) const {
    torch::cuda::synchronize();
    auto on_cpu = parsed(text, over);
    for (const auto& sample : seen) on_cpu.update(sample.cpu().to(at::kDouble));
    return on_cpu.results();
  }

  nn::Sequential model{nullptr};
  at::Tensor input, output, marked = torch::zeros({4}, device());
  c10::cuda::CUDAStream stream;
  at::cuda::CUDAGraph graph;
  std::vector<at::Tensor> seen;
};

void check_replays(const core::Results& got, const core::Results& want) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : want) {
    const at::Tensor here = got.at(name).cpu();
    BOOST_TEST(close(here, tensor.to(here.scalar_type()), here.scalar_type() == at::kDouble ? 1e-10 : 1e-6),
               name);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(device_graphs, *boost::unit_test::precondition(has_device))

BOOST_AUTO_TEST_CASE(a_hundred_replays_are_a_hundred_samples) {
  const Fused way(true);
  for (const std::int64_t bytes : {0, 1 << 20}) {
    for (const std::vector<std::int64_t>& over :
         {std::vector<std::int64_t>{0}, std::vector<std::int64_t>{}}) {
      for (const auto& text : kPageReductions) {
        BOOST_TEST_CONTEXT(text << ", over " << at::IntArrayRef(over) << ", deferred " << bytes) {
          Served served;
          recorders::ForwardOutput recorder(reducing(text, over).defer(bytes));
          recorder.attach(served.model, selectors::names("2"));
          for (int i = 0; i < 3; ++i) served.run();
          BOOST_TEST(served.capture() == "");
          for (int i = 0; i < 100; ++i) served.replay();
          for (int i = 0; i < 2; ++i) served.run();
          torch::cuda::synchronize();
          BOOST_TEST(recorder[0].samples() == 105);
          check_replays(recorder[0].results(), served.want(text, over));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(replays_read_the_mask_of_their_time) {
  const Fused way(true);
  for (const auto& text : kMaskedReductions) {
    BOOST_TEST_CONTEXT(text) {
      Served served;
      recorders::ForwardOutput recorder(chosen(text, {0}));
      recorder.attach(served.model, selectors::names("2"));
      const at::Tensor mask = torch::zeros({64}, at::TensorOptions(at::kBool).device(device()));
      const core::Context named("mask", mask);
      reductions::Any on_cpu = reductions::where("mask", parsed(text, {0}));
      for (int i = 0; i < 22; ++i) {
        mask.copy_(torch::rand({64}).lt(i % 7 == 3 ? 0 : 0.5));
        torch::cuda::synchronize();
        if (i == 1) BOOST_TEST(served.capture() == "");
        if (i == 0 || i == 21) {
          served.run();
        } else {
          served.replay();
        }
        torch::cuda::synchronize();
        feed(on_cpu, served.seen.back(), mask);
      }
      BOOST_TEST(recorder[0].samples() == 22);
      check_replays(recorder[0].results(), on_cpu.results());
    }
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_captured_is_refused_and_the_capture_ends) {
  const Fused way(true);
  for (const auto& options :
       {recorders::RecorderOptions(), reducing("quantiles"), reducing("top_k:3"), reducing("histogram:16"),
        reducing("sum").condition(
            [](const recorders::Sample&sample) { return sample.tensor().sum().item<float>() > 0; }),
        recorders::RecorderOptions().reduction(
            [](const at::Tensor&a, const at::Tensor&b) { return a + b; })}) {
    Served served;
    recorders::ForwardOutput recorder(options);
    recorder.attach(served.model, selectors::names("2"));
    for (int i = 0; i < 2; ++i) served.run();
    torch::cuda::synchronize();
    const std::int64_t samples = recorder.samples();
    const std::string error = served.capture();
    BOOST_TEST(error.find("\"2\" (") != std::string::npos, error);
    served.replay();
    torch::cuda::synchronize();
    BOOST_TEST(served.marked.eq(1).all().item<bool>());
    BOOST_TEST(recorder.samples() == samples);
  }
}

BOOST_AUTO_TEST_CASE(two_streams_add_to_one_module) {
  const Fused way(true);
  const char* const text = "moments, min, max, count, log_histogram";
  nn::Sequential model{nn::Identity()};
  recorders::ForwardOutput recorder(reducing(text, {0, 1}));
  recorder.attach(model, selectors::names("0"));
  const c10::cuda::CUDAStream streams[] = {c10::cuda::getStreamFromPool(), c10::cuda::getStreamFromPool()};
  std::vector<at::Tensor> samples;
  for (int i = 0; i < 40; ++i) samples.push_back(torch::randn({200, 300, 8}, device()) * (i + 1));
  torch::cuda::synchronize();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const c10::cuda::CUDAStreamGuard guard(streams[i % 2]);
    model->forward(samples[i]);
  }
  torch::cuda::synchronize();
  auto on_cpu = parsed(text, {0, 1});
  for (const auto& sample : samples) on_cpu.update(sample.cpu().to(at::kDouble));
  check_replays(recorder[0].results(), on_cpu.results());
  BOOST_TEST(recorder.samples() == 40);
}

BOOST_AUTO_TEST_CASE(two_graphs_that_run_at_the_same_time_add_to_one_module) {
  const Fused way(true);
  Served first, second;
  recorders::ForwardOutput recorder(reducing("sum, count, max", {}));
  recorder.attach(first.model, selectors::names("2"));
  second.model = first.model;
  for (auto* one : {&first, &second}) {
    one->run();
    torch::cuda::synchronize();
    BOOST_TEST(one->capture() == "");
  }
  for (int i = 0; i < 50; ++i) {
    first.replay();
    second.replay();
  }
  torch::cuda::synchronize();
  for (const auto& sample : second.seen) first.seen.push_back(sample);
  BOOST_TEST(recorder.samples() == 102);
  check_replays(recorder[0].results(), first.want("sum, count, max", {}));
}

BOOST_AUTO_TEST_CASE(a_sample_of_more_than_two_to_the_31_elements) {
  const Fused way(true);
  const std::int64_t size = (std::int64_t{1} << 31) + 4099;
  nn::Sequential model{nn::Identity()};
  recorders::ForwardOutput recorder(reducing("moments, min, max, count", {}));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = torch::zeros({size}, at::TensorOptions(at::kHalf).device(device()));
  x[size - 1] = 3;
  x[5] = std::numeric_limits<float>::quiet_NaN();
  model->forward(x);
  BOOST_TEST(recorder[0].tensor("count.elements").item<std::int64_t>() == size);
  BOOST_TEST(recorder[0].tensor("count.zeros").item<std::int64_t>() == size - 2);
  BOOST_TEST(recorder[0].tensor("count.nan").item<std::int64_t>() == 1);
}

BOOST_AUTO_TEST_SUITE_END()

#endif
