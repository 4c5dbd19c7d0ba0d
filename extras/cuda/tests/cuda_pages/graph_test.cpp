// Recorders and graphs: replays are samples like any other, and what cannot be captured is refused.
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/torchtap.hpp>

#include "../page_cases.hpp"
#include "on_pages.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;

namespace {

reductions::ParseOptions over_rows() {
  return reductions::ParseOptions().over({0});
}

recorders::RecorderOptions with(const std::string& text) {
  return recorders::RecorderOptions().reduction(reductions::parse(text, over_rows()));
}

/// A model whose output is its input, in one memory, and batches to put there.
struct Served {
  Served() : model(Same()), input(fake::on_device(at::zeros({kRows, 35}))) { at::manual_seed(4); }

  at::Tensor batch() {
    seen.push_back(at::randn({kRows, 35}) * static_cast<double>(seen.size() + 1));
    return seen.back();
  }
  void run() {
    input.copy_(batch());
    model->forward(input);
  }
  void capture() {
    fake::begin_capture();
    model->forward(input);
    graph = fake::end_capture();
  }
  void replay() {
    input.copy_(batch());
    fake::replay(graph);
  }
  core::Results want(const std::string& text) const {
    auto on_cpu = reductions::parse(text, over_rows());
    for (const auto& sample : seen) on_cpu.update(sample.to(at::kDouble));
    return on_cpu.results();
  }

  static constexpr std::int64_t kRows = 600;
  nn::Sequential model;
  at::Tensor input;
  std::vector<at::Tensor> seen;
  fake::Graph graph;
};

/// What a capture says to this recorder; it must end in a graph that has what was captured before.
std::string refusal(const recorders::RecorderOptions& options, bool warm = true) {
  Served served;
  recorders::ForwardOutput recorder(options);
  recorder.attach(served.model, selectors::names("0"));
  if (warm) served.run();
  fake::run();
  const std::int64_t samples = recorder.samples();
  fake::begin_capture();
  served.input.fill_(3);
  const std::string error = error_of([&] { served.model->forward(served.input); });
  served.graph = fake::end_capture();
  BOOST_TEST(served.graph.jobs.size() == 1u);
  fake::replay(served.graph);
  fake::run();
  BOOST_TEST(served.input.cpu().eq(3).all().item<bool>());
  BOOST_TEST(recorder.samples() == samples);
  return error;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_graphs)

BOOST_AUTO_TEST_CASE(replays_are_samples) {
  const OnPages pages;
  for (const char* text : {"sum", "mean", "moments", "min", "max", "abs_max", "norm", "norm:inf", "norm:3",
                           "ema:0.9", "count", "histogram:16:-50:50", "log_histogram",
                           "moments, min, max, count", "mean, histogram:7:-3:9, log_histogram:2, ema:0.5"}) {
    BOOST_TEST_CONTEXT(text) {
      Served served;
      recorders::ForwardOutput recorder(with(text));
      recorder.attach(served.model, selectors::names("0"));
      for (int i = 0; i < 3; ++i) served.run();
      served.capture();
      BOOST_TEST(recorder.samples() == 3);  // a capture is none
      for (int i = 0; i < 20; ++i) served.replay();
      BOOST_TEST(recorder.samples() == 23);
      check_same(recorder[0].results(), served.want(text));
      for (int i = 0; i < 3; ++i) served.run();  // eager and captured, one after another
      for (int i = 0; i < 4; ++i) served.replay();
      served.run();
      check_same(recorder[0].results(), served.want(text));
      BOOST_TEST(recorder[0].samples() == 31);
      BOOST_TEST(recorder[0].events() == 31);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_graph_needs_one_launch_for_a_series) {
  const OnPages pages;
  Served served;
  recorders::ForwardOutput recorder(with("moments, min, max, count, abs_max, norm, mean, sum"));
  recorder.attach(served.model, selectors::names("0"));
  served.run();
  const std::int64_t before = fake::launches();
  served.run();
  BOOST_TEST(fake::launches() == before + 1);
  served.capture();
  BOOST_TEST(fake::launches() == before + 2);
}

BOOST_AUTO_TEST_CASE(files_snapshots_and_merges_have_the_replays) {
  const OnPages pages;
  const TemporaryDirectory folder;
  Served served;
  recorders::ForwardOutput recorder(with("moments")), other(with("moments"));
  recorder.attach(served.model, selectors::names("0"));
  served.run();
  served.capture();
  for (int i = 0; i < 5; ++i) served.replay();
  recorder.save(folder / "saved", storage::SaveOptions().mkdir(true));
  const auto saved = storage::load(folder / "saved");
  BOOST_TEST(saved.at("0").samples() == 6);
  for (const char* const name : {"mean", "variance", "skewness"})
    BOOST_TEST(close(saved.at("0").tensor(name), served.want("moments").at(name), 1e-10));
  for (int i = 0; i < 2; ++i) served.replay();
  std::stringstream snapshot;
  recorder.snapshot(snapshot);
  other.attach(served.model, selectors::names("0"));
  other.restore(snapshot);
  other.detach();
  BOOST_TEST(other.samples() == 8);
  check_same(other[0].results(), served.want("moments"), at::kCPU);  // until it records
  other.merge(recorder);
  BOOST_TEST(other.samples() == 16);
}

BOOST_AUTO_TEST_CASE(taking_and_resetting_go_on_with_the_graph) {
  const OnPages pages;
  Served served;
  recorders::ForwardOutput recorder(with("sum"));
  recorder.attach(served.model, selectors::names("0"));
  served.run();
  served.capture();
  served.replay();
  BOOST_TEST(close(recorder[0].take().tensor().cpu(), served.want("sum").at("value").to(at::kFloat), 1e-5));
  BOOST_TEST(recorder.samples() == 0);
  served.seen.clear();
  for (int i = 0; i < 3; ++i) served.replay();
  BOOST_TEST(recorder.samples() == 3);
  BOOST_TEST(close(recorder[0].tensor().cpu(), served.want("sum").at("value").to(at::kFloat), 1e-5));
  recorder.reset();
  BOOST_TEST(recorder.samples() == 0);
  served.seen.clear();
  served.replay();
  BOOST_TEST(close(recorder[0].tensor().cpu(), served.want("sum").at("value").to(at::kFloat), 1e-5));
  BOOST_TEST(recorder[0].tensor().device() == fake::device());
}

BOOST_AUTO_TEST_CASE(a_graph_outlives_its_recorder) {
  const OnPages pages;
  Served served;
  {
    recorders::ForwardOutput recorder(with("moments, count"));
    recorder.attach(served.model, selectors::names("0"));
    served.run();
    served.capture();
  }
  std::vector<at::Tensor> others;  // in memory that was free
  for (int i = 0; i < 50; ++i) others.push_back(fake::on_device(at::full({1000}, i)));
  for (int i = 0; i < 3; ++i) served.replay();
  for (int i = 0; i < 50; ++i) BOOST_TEST(others[static_cast<std::size_t>(i)].cpu().eq(i).all().item<bool>());
}

BOOST_AUTO_TEST_CASE(several_graphs_of_other_shapes_add_to_one) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(with("mean, count"));
  recorder.attach(model, selectors::names("0"));
  at::manual_seed(1);
  auto on_cpu = reductions::parse("mean, count", over_rows());
  std::vector<std::pair<at::Tensor, fake::Graph>> graphs;
  for (const std::int64_t rows : {1, 8, 700}) {
    const at::Tensor input = fake::on_device(at::randn({rows, 4}));
    on_cpu.update(input.cpu());
    model->forward(input);
    fake::begin_capture();
    model->forward(input);
    graphs.emplace_back(input, fake::end_capture());
  }
  for (int i = 0; i < 9; ++i) {
    auto& [input, graph] = graphs[static_cast<std::size_t>(i % 3)];
    const at::Tensor batch = at::randn(input.sizes());
    input.copy_(batch);
    fake::replay(graph);
    on_cpu.update(batch);
  }
  BOOST_TEST(recorder.samples() == 12);
  BOOST_TEST(close(recorder[0].tensor("mean.value").cpu(), on_cpu.results().at("mean.value"), 1e-6));
  BOOST_TEST(recorder[0].tensor("count.rows").cpu().equal(on_cpu.results().at("count.rows")));
  BOOST_TEST(recorder[0].tensor("count.elements").cpu().equal(on_cpu.results().at("count.elements")));
}

BOOST_AUTO_TEST_CASE(gradients_are_captured_too) {
  const OnPages pages;
  Served served;
  nn::Sequential model{Same()};
  recorders::BackwardOutput recorder(with("sum"));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor input = fake::on_device(at::ones({4, 3})).requires_grad_(),
                   grad = fake::on_device(at::ones({4, 3}));
  model->forward(input.mul(2)).backward(grad);
  BOOST_TEST(recorder.samples() == 1);
  BOOST_TEST(recorder[0].tensor().cpu().eq(4).all().item<bool>());
}

BOOST_AUTO_TEST_CASE(what_a_replay_cannot_do_is_refused) {
  const OnPages pages;
  using recorders::RecorderOptions;
  const auto refused = [](const RecorderOptions& options, const std::vector<std::string>& words) {
    const std::string error = refusal(options, /*warm=*/false);
    for (const auto& word : words)
      BOOST_TEST(error.find(word) != std::string::npos, word << " is not in: " << error);
    BOOST_TEST(error.find("\"0\" (") != std::string::npos, error);
  };
  refused(RecorderOptions(), {"keeps samples", "graph", "detach"});
  refused(with("sum").condition([](const recorders::Sample&) { return true; }), {"condition"});
  refused(with("sum").condition([] { return false; }), {"condition"});
  refused(with("sum").transform([](const at::Tensor& x) { return x; }), {"transform"});
  refused(with("sum").device(at::kCPU), {"another device"});
  for (const char* text :
       {"quantiles", "top_k:3", "histogram:16", "covariance", "first", "window(3, mean)", "sum, quantiles"})
    refused(with(text), {"fused", "detach"});
  refused(RecorderOptions().reduction([](const at::Tensor& a, const at::Tensor& b) { return a + b; }),
          {"callable"});
  refused(RecorderOptions().reduction(reductions::Moments()), {"over rows"});  // elementwise
  const std::string cold = refusal(with("sum"), /*warm=*/false);
  BOOST_TEST(cold.find("run the model once") != std::string::npos, cold);
}

BOOST_AUTO_TEST_CASE(a_sample_that_does_not_fit_is_an_error_of_the_capture) {
  const OnPages pages;
  Served served;
  recorders::ForwardOutput recorder(reducing("sum"));
  recorder.attach(served.model, selectors::names("0"));
  served.run();
  const at::Tensor other = fake::on_device(at::ones({4, 3}));
  fake::begin_capture();
  BOOST_CHECK_EXCEPTION(served.model->forward(other), c10::Error, says({"\"0\" (Same)", "shape"}));
  fake::end_capture();
  BOOST_TEST(recorder.samples() == 1);
  BOOST_TEST(recorder[0].left_out() == 0);
}

BOOST_AUTO_TEST_CASE(without_kernels_and_without_a_recorder_a_graph_is_refused) {
  const OnPages pages;
  const auto kernels = reductions::extend::installed();
  reductions::extend::install(nullptr);
  const std::string error = refusal(with("sum"));
  BOOST_TEST(error.find("enable_fused_kernels") != std::string::npos, error);
  reductions::extend::install(kernels);
  reductions::Sum sum;
  const at::Tensor sample = fake::on_device(at::ones({3}));
  fake::begin_capture();
  BOOST_CHECK_EXCEPTION(sum.update(sample), c10::Error, says({"graph", "recorder"}));
  fake::end_capture();
  BOOST_TEST(sum.count() == 0);
}

BOOST_AUTO_TEST_CASE(kernels_come_and_go) {
  const OnPages pages;
  const auto kernels = reductions::extend::installed();
  Served served;
  recorders::ForwardOutput recorder(with("mean, min"));
  recorder.attach(served.model, selectors::names("0"));
  reductions::extend::install(nullptr);
  for (int i = 0; i < 2; ++i) served.run();
  reductions::extend::install(kernels);
  for (int i = 0; i < 2; ++i) served.run();
  reductions::extend::install(nullptr);
  for (int i = 0; i < 2; ++i) served.run();
  check_same(recorder[0].results(), served.want("mean, min"));
  reductions::extend::install(kernels);
  for (int i = 0; i < 2; ++i) served.run();
  BOOST_TEST(recorder.samples() == 8);
  check_same(recorder[0].results(), served.want("mean, min"));
}

BOOST_AUTO_TEST_CASE(a_sample_of_another_shape_or_device_is_left_out) {
  const OnPages pages;
  Served served;
  recorders::ForwardOutput recorder(with("mean"));
  recorder.attach(served.model, selectors::names("0"));
  served.run();
  served.model->forward(fake::on_device(at::ones({4, 3})));
  served.model->forward(fake::on_device(at::ones({4, 35}), 1));
  BOOST_TEST(recorder.samples() == 1);
  BOOST_TEST(recorder[0].left_out() == 2);
  BOOST_TEST(recorder[0].note().find("does not match the shape") != std::string::npos, recorder[0].note());
  check_same(recorder[0].results(), served.want("mean"));
}

BOOST_AUTO_TEST_SUITE_END()
