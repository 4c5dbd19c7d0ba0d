// Reports of every type of module and of whole networks: the results stay the same bits, and nothing is left.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "support.hpp"
#include "tests/builtins/watch.hpp"
#include "tests/script/support.hpp"
#include "zoo/detector.hpp"
#include "zoo/gpt.hpp"
#include "zoo/mobilenet.hpp"
#include "zoo/resnet.hpp"
#include "zoo/tagger.hpp"
#include "zoo/unet.hpp"
#include "zoo/vae.hpp"

namespace {

using namespace support;
using report::Phase;
using report::Report;

/// What has to hold of every report. Modules that run beside each other take longer together than the root.
void check_sums(const report::Measurements& results, bool one_thread = true) {
  std::int64_t macs = 0, backward_macs = 0, operations = 0;
  double self = 0;
  for_each_row(results.root, [&](const report::ModuleRow& row) {
    macs += row.forward.self_work.macs;
    backward_macs += row.backward.self_work.macs;
    operations += row.forward.self_work.operations;
    self += row.forward.self.total;
    BOOST_TEST(row.forward.inclusive.total >= row.forward.self.total, row.path);
    BOOST_TEST(row.forward.inclusive.calls == row.forward.self.calls, row.path);
    if (row.forward.inclusive.calls == 0) return;
    BOOST_TEST(row.forward.memory.peak >= 0, row.path);
    BOOST_TEST(row.forward.memory.peak >= row.forward.memory.kept / row.forward.inclusive.calls, row.path);
  });
  if (results.root.forward.inclusive.calls > 0) {
    BOOST_TEST(macs == results.root.forward.work.macs);
    BOOST_TEST(operations == results.root.forward.work.operations);
    if (one_thread)
      BOOST_TEST(self <= results.root.forward.inclusive.total + 1e-4);  // as no time is below zero
    BOOST_TEST(results.root.forward.inclusive.total <= results.seconds);
  }
}

template <class Holder, std::size_t N, class Make>
void check_type(const std::string& name, Make make, const std::array<at::Tensor, N>& given) {
  BOOST_TEST_CONTEXT(name) {
    const builtins::Tensors inputs(given.begin(), given.end());
    constexpr auto all = std::make_index_sequence<N>();
    const auto plain = builtins::entry<Holder>(make, all), reported = builtins::entry<Holder>(make, all);
    const auto want = builtins::run(*plain.module, inputs, plain.forward);
    Report report(*reported.module);
    std::optional<report::Repeat> recording(report.record());
    const auto have = builtins::run(*reported.module, inputs, reported.forward);
    recording.reset();
    builtins::check_same(have, want);
    const auto results = report.results();
    BOOST_TEST(row(results, "0").forward.inclusive.calls == 1);
    BOOST_TEST(row(results, "0").inputs.size() >= N);
    BOOST_TEST(row(results, "0").outputs.size() >= 1U);
    check_sums(results);
  }
}

}  // namespace

#define CHECK_TYPE(Name, arguments, ...)                                                                 \
  check_type<torch::nn::Name>(                                                                           \
      #Name,                                                                                             \
      [](auto*) { return torch::nn::Name(std::make_shared<torch::nn::Name::ContainedType> arguments); }, \
      __VA_ARGS__)

#include "tests/builtins/table.hpp"

BOOST_AUTO_TEST_SUITE(models)

namespace {

/// A network with its forward on some data, which returns something to go backward from.
struct Network {
  std::shared_ptr<nn::Module> model;
  std::function<at::Tensor()> forward;
};

template <class Holder, class Function>
Network network(Holder model, Function&& forward) {
  return {model.ptr(), [model, forward]() mutable { return forward(model); }};
}

struct Entry {
  std::string name;
  std::function<Network()> make;
};
std::ostream& operator<<(std::ostream& out, const Entry& entry) {
  return out << entry.name;
}

const Entry entries[]{
    {"ResNet-18",
     [] {
       return network(zoo::ResNet18(zoo::ResNet18Options().num_classes(10).width(8)),
                      [x = torch::randn({2, 3, 64, 64})](auto& model) { return model(x).square().sum(); });
     }},
    {"U-Net",
     [] {
       return network(zoo::UNet(zoo::UNetOptions(1, 2).width(4).depth(2)),
                      [x = torch::randn({2, 1, 21, 18})](auto& model) { return model(x).square().sum(); });
     }},
    {"GPT",
     [] {
       return network(zoo::GPT(zoo::GPTOptions(20).context(16).layers(2).heads(2).width(16)),
                      [x = torch::randint(20, {2, 9})](auto& model) { return model(x).square().sum(); });
     }},
    {"VAE",
     [] {
       return network(zoo::VAE(12, 8, 3), [x = torch::rand({4, 12})](auto& model) {
         const auto out = model(x);
         return torch::binary_cross_entropy(out.reconstruction.to(at::kFloat), x) + out.mean.square().sum() +
                out.log_variance.exp().sum();
       });
     }},
    {"tagger",
     [] {
       return network(zoo::Tagger(20, 5, 8),
                      [x = torch::randint(20, {3, 7}), lengths = torch::tensor({7, 2, 4})](auto& model) {
                        return model(x, lengths).square().sum();
                      });
     }},
    {"detector",
     [] {
       return network(zoo::Detector(3), [x = torch::randn({2, 3, 16, 16})](auto& model) {
         const auto found = model(x);
         return found.at("boxes").square().sum() + found.at("scores").sum();
       });
     }},
    {"MobileNet", [] {
       return network(zoo::MobileNet<zoo::Separable>(3, 10, 4, 2),
                      [x = torch::randn({2, 3, 16, 16})](auto& model) { return model(x).square().sum(); });
     }}};

BOOST_AUTO_TEST_CASE(every_built_in_type_gives_the_same_bits) {
  builtins::all();
}

/// Three steps of training and one without gradients.
std::vector<at::Tensor> outcomes(const Network& network, Report* report) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < 3; ++i) {
    std::optional<report::Repeat> recording;
    if (report != nullptr) recording.emplace(report->record());
    const auto loss = network.forward();
    if (recording) recording->phase(Phase::backward);
    loss.backward();
    all.push_back(loss.detach());
  }
  const c10::InferenceMode mode;
  std::optional<report::Repeat> recording;
  if (report != nullptr) recording.emplace(report->record());
  all.push_back(network.forward());
  for (const auto& parameter : network.model->parameters()) all.push_back(parameter.grad());
  for (const auto& buffer : network.model->buffers()) all.push_back(buffer);
  all.push_back(torch::rand({3}));
  return all;
}

BOOST_DATA_TEST_CASE(networks_of_the_zoo_give_the_same_bits, boost::unit_test::data::make(entries), entry) {
  at::set_num_threads(1);
  const auto run = [&](bool with_report) {
    torch::manual_seed(0);
    const Network network = entry.make();
    if (!with_report) return outcomes(network, nullptr);
    Report report(*network.model);
    auto all = outcomes(network, &report);
    const auto results = report.results();
    check_sums(results);
    BOOST_TEST(results.repeats == 4);
    BOOST_TEST(results.root.forward.work.macs + results.outside_forward.macs > 0);
    return all;
  };
  const auto plain = run(false), reported = run(true);
  BOOST_REQUIRE(plain.size() == reported.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    BOOST_TEST(plain[i].defined() == reported[i].defined());
    if (plain[i].defined()) BOOST_TEST(plain[i].equal(reported[i]), "tensor " << i);
  }
}

BOOST_AUTO_TEST_CASE(torchscript_files_give_the_same_bits) {
  // Kernels that newer versions of LibTorch fuse once a model is warm round at other places than the model
  // does.
  const bool fuses = torch::jit::tensorExprFuserEnabled();
  torch::jit::setTensorExprFuserEnabled(false);
  const std::shared_ptr<void> restore(nullptr, [=](void*) { torch::jit::setTensorExprFuserEnabled(fuses); });
  for (const char* name : {"resnet18.script", "resnet18.trace", "values.script", "siamese.script",
                           "siamese.trace", "tagger.script", "detector.script", "interfaced.script",
#ifndef __SANITIZE_THREAD__  // see extras/torchscript/tests/script/values_test.cpp
                           "forked.script",
#endif
                           "siamese.optimized", "resnet18.frozen"}) {
    if (!std::filesystem::exists(torchtap_test::file(name))) continue;
    BOOST_TEST_CONTEXT(name) {
      const std::string model = std::string(name).substr(0, std::string(name).find('.'));
      const auto inputs = torchtap_test::arguments(model);
      auto plain = torchtap_test::load(name), reported = torchtap_test::load(name);
      Report report(reported);
      for (int i = 0; i < 4; ++i) {
        torch::manual_seed(i);
        const auto want = torchtap_test::flat(plain.forward(inputs));
        torch::manual_seed(i);
        const auto recording = report.record();
        BOOST_TEST(torchtap_test::same(torchtap_test::flat(reported.forward(inputs)), want));
      }
      const auto results = report.results();
      check_sums(results, model != "forked");
      BOOST_TEST(results.root.forward.inclusive.calls == 4);
      BOOST_TEST(results.root.forward.inclusive.first > 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_left) {
  zoo::ResNet18 net(zoo::ResNet18Options().num_classes(10).width(8));
  {
    Report report(*net);
    const auto recording = report.record();
    net(torch::randn({2, 3, 32, 32}));
  }
  BOOST_TEST(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO) == nullptr);
  BOOST_TEST(!c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode));
  BOOST_TEST(!at::hasThreadLocalCallbacks());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
