// Traces, reports, streams, fingerprints and monitors of a model that is on a device.
#include <torch/torch.h>

#include <chrono>
#include <cstring>
#include <thread>

#include <torchtap/torchtap.hpp>
#include <torchtap/views/compare/compare.hpp>
#include <torchtap/views/monitor/monitor.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/stream/stream.hpp>
#include <torchtap/views/trace/trace.hpp>

#include "on_device.hpp"
#include "tests/support.hpp"
#include "zoo/resnet.hpp"

using namespace torchtap;
using namespace torchtap_test;
using namespace std::chrono_literals;
namespace utf = boost::unit_test;
namespace report = views::report;
namespace stream = views::stream;
namespace trace = views::trace;

namespace {

zoo::ResNet18 resnet() {
  torch::manual_seed(0);
  zoo::ResNet18 model(zoo::ResNet18Options().num_classes(10).width(16));
  model->to(device());
  return model;
}

at::Tensor batch(std::int64_t size = 4) {
  torch::manual_seed(1);
  return torch::randn({size, 3, 64, 64}).to(device());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(device_views, *utf::precondition(has_device))

BOOST_AUTO_TEST_CASE(a_trace_is_that_of_the_model_and_validates) {
  const Deterministic deterministic;
  auto model = resnet();
  model->eval();
  const auto images = batch();
  const auto want = model->forward(images);
  const auto history =
      trace::log_forward_pass(*model, {images}, trace::TraceOptions().save(trace::Save::all));
  BOOST_TEST(history["fc"].tensor().equal(want.detach()));
  BOOST_TEST(history["fc"].tensor().device() == device());
  const auto validation = history.validate();
  BOOST_TEST(static_cast<bool>(validation), validation);
  const TemporaryDirectory folder;
  history.save(folder / "pass", storage::SaveOptions().mkdir(true));
  BOOST_TEST(trace::History::load(folder / "pass")["fc"].tensor().cpu().equal(want.detach().cpu()));
  BOOST_TEST(model->forward(images).equal(want));
}

BOOST_AUTO_TEST_CASE(a_report_counts_work_and_memory_of_the_device) {
  auto model = resnet();
  const auto images = batch();
  report::Report costs(*model, report::ReportOptions().synchronize(true));
  for (int repeat = 0; repeat < 3; ++repeat) {
    auto recording = costs.record();
    auto loss = model->forward(images).square().mean();
    recording.phase(report::Phase::backward);
    loss.backward();
  }
  const auto results = costs.results();
  BOOST_TEST(results.root.forward.work.macs > 0);
  std::ostringstream text;
  text << costs;
  BOOST_TEST_MESSAGE(text.str());
  BOOST_TEST(contains(text.str(), "layer4"));
}

BOOST_AUTO_TEST_CASE(the_first_nan_is_found_on_the_device) {
  auto model = resnet();
  {
    const torch::NoGradGuard no_grad;
    model->named_parameters()["layer2.0.conv1.weight"].view(-1)[0] = NAN;
  }
  report::Report costs(*model, report::ReportOptions().non_finite(report::OnNonFinite::note));
  {
    auto recording = costs.record();
    model->forward(batch());
  }
  const auto results = costs.results();
  BOOST_REQUIRE(!results.findings.empty());
  BOOST_TEST(contains(results.findings.front().function, "weight"), results.findings.front().function);
  BOOST_TEST(contains(results.findings.front().module, "layer2.0"), results.findings.front().module);
}

BOOST_AUTO_TEST_CASE(streams_send_every_tensor_byte_for_byte_without_waiting) {
  const TemporaryDirectory folder;
  stream::Publisher publisher("device", stream::PublisherOptions().directory(folder.path()).bytes(64 << 20));
  auto source = publisher.source("hand");
  stream::Reader reader("device", {}, stream::ReaderOptions().directory(folder.path()));
  std::vector<at::Tensor> sent, want;
  torch::manual_seed(2);
  for (const auto dtype : {at::kByte, at::kLong, at::kHalf, at::kFloat, at::kDouble, at::kBFloat16, at::kBool,
                           at::kComplexFloat}) {
    const at::Tensor tensor = (torch::rand({400, 60}) * 9).to(dtype);
    for (const auto& part : {tensor, tensor.t(), tensor.slice(1, 1, 60, 2)}) {
      want.push_back(part.contiguous());
      sent.push_back(part.to(device()));
    }
  }
  source.publish(sent[0]);  // makes the thread, and pins memory
  BOOST_REQUIRE(reader.next(20s).has_value());
  {
    const NoWaiting strict;
    for (const auto& tensor : sent) BOOST_TEST(error_of([&] { BOOST_TEST(source.publish(tensor)); }) == "");
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto frame = reader.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST_REQUIRE(!frame->without_data, frame->text);
    const at::Tensor got = stream::to_tensor(*frame);
    BOOST_TEST(got.scalar_type() == want[i].scalar_type());
    BOOST_TEST(got.sizes() == want[i].sizes());
    BOOST_TEST(std::memcmp(got.data_ptr(), want[i].data_ptr(), want[i].nbytes()) == 0, "tensor " << i);
  }
}

BOOST_AUTO_TEST_CASE(readers_see_the_tensor_as_it_was_handed_over) {
  const TemporaryDirectory folder;
  stream::Publisher publisher("device", stream::PublisherOptions().directory(folder.path()).bytes(256 << 20));
  auto source = publisher.source("hand");
  stream::Reader reader("device", {}, stream::ReaderOptions().directory(folder.path()));
  const at::Tensor tensor = torch::empty({1 << 20}, device());
  for (int i = 0; i < 20; ++i) {
    tensor.fill_(i);
    source.publish(tensor);
  }
  tensor.fill_(-1);
  for (int i = 0; i < 20; ++i) {
    const auto frame = reader.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST((stream::to_tensor(*frame) == i).all().item<bool>(), "frame " << i);
  }
}

BOOST_AUTO_TEST_CASE(fingerprints_are_those_of_the_same_bytes_on_the_cpu) {
  const TemporaryDirectory folder;
  torch::manual_seed(0);
  torch::nn::Sequential here{torch::nn::ReLU(), torch::nn::Flatten()},
      on_cpu{torch::nn::ReLU(), torch::nn::Flatten()};
  const auto images = batch();
  {
    views::compare::Fingerprints prints(folder / "here"), others(folder / "cpu");
    prints.attach(here);
    others.attach(on_cpu);
    here->forward(images);
    on_cpu->forward(images.cpu());
  }
  const auto run = views::compare::Run::read(folder / "here"),
             other = views::compare::Run::read(folder / "cpu");
  BOOST_REQUIRE(run.records().size() == other.records().size());
  BOOST_TEST(run.records().size() >= 4U);
  for (std::size_t i = 0; i < run.records().size(); ++i) {
    BOOST_TEST(run.records()[i].digest[0] != 0U);
    BOOST_TEST((run.records()[i].digest == other.records()[i].digest), "record " << i);
  }
}

BOOST_AUTO_TEST_CASE(a_monitor_learns_and_watches_on_the_device) {
  namespace monitor = views::monitor;
  const TemporaryDirectory folder;
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Linear(32, 4));
  model->to(device());
  const torch::NoGradGuard no_grad;
  const auto options = [] { return monitor::MonitorOptions().cost(1).thread(false).window(256); };
  {
    monitor::Monitor learning(model, "", options().learn(folder / "reference"));
    for (int i = 0; i < 200; ++i) model->forward(torch::randn({32, 16}).to(device()));
    learning.flush();
  }
  monitor::Monitor watch(model, folder / "reference", options().incidents(folder / "incidents"));
  for (int i = 0; i < 64; ++i) model->forward(torch::randn({32, 16}).to(device()));
  watch.flush();
  BOOST_TEST(watch.alarms().empty());
  for (int i = 0; i < 64; ++i) model->forward(torch::randn({32, 16}).add_(1).to(device()));
  watch.flush();
  BOOST_TEST(!watch.alarms().empty());
}

BOOST_AUTO_TEST_SUITE_END()
