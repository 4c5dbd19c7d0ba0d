// Multiply-accumulates and bytes of models whose numbers are published or counted by hand.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <torch/library.h>

#include <functional>

#include "support.hpp"
#include "zoo/resnet.hpp"

BOOST_AUTO_TEST_SUITE(work)

namespace {

using namespace support;
using report::Report;

/// Only work is measured.
report::ReportOptions work_only() {
  return report::ReportOptions().memory(false).non_finite(report::OnNonFinite::ignore);
}

report::Measurements measured(torch::jit::Module& model, const std::vector<c10::IValue>& inputs) {
  const torch::NoGradGuard no_grad;
  Report report(model, work_only());
  {
    const auto recording = report.record();
    model.forward(inputs);
  }
  return report.results();
}

struct Published {
  std::string model;
  std::int64_t macs;  // per image; of convolutions and matrix products, to the nearest 0.1 M
  std::int64_t parameters;
};
std::ostream& operator<<(std::ostream& out, const Published& one) {
  return out << one.model;
}

const Published published[]{{"resnet18", 1814'100'000, 11'689'512},
                            {"alexnet", 714'200'000, 61'100'840},
                            {"vit", 17'563'800'000, 86'567'656},
                            {"mobilenet", 56'500'000, 2'542'856}};

BOOST_DATA_TEST_CASE(torchscript_models_of_torchvision, boost::unit_test::data::make(published), one) {
  auto model = torch::jit::load(model_file(one.model));
  for (const bool train : {false, true}) {
    // ViT takes long enough with one image.
    const int images = train && one.model != "vit" ? 2 : 1;
    model.train(train);
    const auto results = measured(model, {torch::rand({images, 3, 224, 224})});
    const auto& root = results.root;
    BOOST_TEST(std::abs(root.forward.work.macs / images - one.macs) < 100'000,
               root.forward.work.macs / images << (train ? " in train" : " in eval"));
    BOOST_TEST(root.parameters == one.parameters);
    BOOST_TEST(root.learnable_parameters == one.parameters);
    BOOST_TEST(results.not_counted.empty());
    // Nothing is lost or counted twice on the way up the tree.
    std::int64_t sum = 0, operations = 0;
    for_each_row(root, [&](const report::ModuleRow& row) {
      sum += row.forward.self_work.macs;
      operations += row.forward.self_work.operations;
    });
    BOOST_TEST(sum == root.forward.work.macs);
    BOOST_TEST(operations == root.forward.work.operations);
    BOOST_TEST(results.outside_forward.macs == 0);
  }
}

namespace {

const report::Measurements& of_a_resnet_in_cpp() {
  static const report::Measurements results = [] {
    zoo::ResNet18 net(zoo::ResNet18Options().num_classes(1000));
    Report report(*net, work_only());
    auto recording = report.record();
    const auto loss = net(torch::rand({2, 3, 224, 224})).sum();
    recording.phase(report::Phase::backward);
    loss.backward();
    recording.stop();
    return report.results();
  }();
  return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_resnet_in_cpp_forward_and_backward) {
  const auto& results = of_a_resnet_in_cpp();
  const auto forward = results.root.forward.work.macs / 2, backward = results.root.backward.work.macs / 2;
  BOOST_TEST(std::abs(forward - 1'814'100'000) < 100'000, forward);
  BOOST_TEST(std::abs(forward + backward - 5'324'000'000) < 500'000, backward);
  BOOST_TEST(results.outside_backward.macs == 0);
  BOOST_TEST(results.root.parameters == 11'689'512);
  BOOST_TEST(results.root.parameter_bytes == 4 * 11'689'512);
  BOOST_TEST(results.root.gradient_bytes == 4 * 11'689'512);
}

BOOST_AUTO_TEST_CASE(modules_of_a_resnet_in_cpp, *where_modules_are_reached()) {
  const auto& results = of_a_resnet_in_cpp();
  // By hand: 64 filters of 3x7x7 at 112x112 places; the image needs no gradient.
  BOOST_TEST(row(results, "conv1").forward.work.macs == 2LL * 64 * 147 * 112 * 112);
  BOOST_TEST(row(results, "conv1").backward.work.macs == 2LL * 64 * 147 * 112 * 112);
  BOOST_TEST(row(results, "fc").forward.work.macs == 2LL * 512 * 1000);
  BOOST_TEST(row(results, "fc").backward.work.macs == 2LL * 2 * 512 * 1000);
  BOOST_TEST(row(results, "layer1.0.bn1").forward.work.macs == 0);
}

BOOST_AUTO_TEST_CASE(an_lstm_and_a_transformer_by_hand) {
  auto lstm = torch::jit::load(model_file("lstm"));
  // Two layers of four gates over inputs of 4 and 5 and states of 5, three times two steps, and the head.
  BOOST_TEST(measured(lstm, {torch::rand({2, 3, 4})}).root.forward.work.macs ==
             2 * 3 * (4 * 20 + 5 * 20 + 5 * 20 + 5 * 20 + 5 * 2));
  auto transformer = torch::jit::load(model_file("transformer"));
  // Projections, scores and values of 7 x 7 pairs, two linear layers.
  const std::int64_t by_hand = 2 * 7 * (16 * 48 + 16 * 16 + 16 * 32 * 2) + 2 * 2 * 7 * 7 * 16;
  transformer.eval();  // the fast path is one operation
  BOOST_TEST(measured(transformer, {torch::rand({2, 7, 16})}).root.forward.work.macs == by_hand);
  transformer.train();
  BOOST_TEST(measured(transformer, {torch::rand({2, 7, 16})}).root.forward.work.macs == by_hand);

  nn::LSTM net(nn::LSTMOptions(4, 5).num_layers(2).bidirectional(true));
  Report report(*net, work_only());
  {
    const auto recording = report.record();
    net->forward(torch::rand({3, 2, 4}));
  }
  const auto results = report.results();
  const std::int64_t macs = results.root.forward.work.macs + results.outside_forward.macs;
  BOOST_TEST(macs == 2 * 3 * 2 * (4 * 20 + 5 * 20 + 10 * 20 + 5 * 20));
}

/// What runs in no module is charged to the run.
std::int64_t macs_of(const std::function<void()>& function, bool backward = false) {
  nn::Sequential none(nn::Identity{});
  Report report(*none, work_only());
  {
    auto recording = report.record();
    if (backward) recording.phase(report::Phase::backward);
    function();
  }
  const auto results = report.results();
  BOOST_TEST(results.not_counted.empty());
  return backward ? results.outside_backward.macs : results.outside_forward.macs;
}

BOOST_AUTO_TEST_CASE(operations_one_by_one) {
  const auto a = torch::rand({3, 5}), b = torch::rand({5, 7}), batch = torch::rand({2, 3, 5});
  const auto v = torch::rand({5});
  BOOST_TEST(macs_of([&] { torch::mm(a, b); }) == 3 * 5 * 7);
  BOOST_TEST(macs_of([&] { torch::addmm(torch::zeros({7}), a, b); }) == 3 * 5 * 7);
  BOOST_TEST(macs_of([&] { torch::matmul(batch, b); }) == 2 * 3 * 5 * 7);
  BOOST_TEST(macs_of([&] { torch::bmm(batch, batch.transpose(1, 2)); }) == 2 * 3 * 5 * 3);
  BOOST_TEST(macs_of([&] { torch::baddbmm(torch::zeros({3}), batch, batch.transpose(1, 2)); }) ==
             2 * 3 * 5 * 3);
  BOOST_TEST(macs_of([&] { torch::mv(a, v); }) == 15);
  BOOST_TEST(macs_of([&] { torch::dot(v, v); }) == 5);
  BOOST_TEST(macs_of([&] { torch::einsum("bij,jk->bik", {batch, b}); }) == 2 * 3 * 5 * 7);
  BOOST_TEST(macs_of([&] {
               torch::nn::functional::linear(batch, torch::rand({9, 5}), torch::rand({9}));
             }) == 2 * 3 * 5 * 9);
  const auto image = torch::rand({2, 4, 9, 9});
  namespace F = torch::nn::functional;
  BOOST_TEST(macs_of([&] {
               F::conv2d(image, torch::rand({6, 2, 3, 3}), F::Conv2dFuncOptions().groups(2));
             }) == 2 * 6 * 7 * 7 * 2 * 9);
  BOOST_TEST(macs_of([&] {
               torch::conv_transpose2d(image, torch::rand({4, 3, 3, 3}), {}, 2);
             }) == 2 * 4 * 81 * 3 * 9);
  BOOST_TEST(macs_of([&] { torch::conv1d(image[0], torch::rand({6, 9, 2})); }) == 4 * 6 * 8 * 9 * 2);
  BOOST_TEST(macs_of([&] { (image + 1).relu().sum(); }) == 0);

  const auto x = torch::rand({2, 4, 9, 9}).requires_grad_(), w = torch::rand({4, 3, 3, 3}).requires_grad_();
  const auto loss = torch::conv_transpose2d(x, w, {}, 2).sum();
  BOOST_TEST(macs_of([&] { loss.backward(); }, true) == 2 * (2 * 4 * 81 * 3 * 9));
}

at::Tensor twice(const at::Tensor& x) {
  return x * 2;
}
TORCH_LIBRARY(report_test, library) {
  library.def("twice(Tensor x) -> Tensor", &twice);
}

BOOST_AUTO_TEST_CASE(operations_without_a_formula_are_listed_and_can_be_given_one) {
  struct TwiceImpl : nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("report_test::twice", "");
      op.typed<at::Tensor(const at::Tensor&)>().call(x);
      return torch::fft_rfft(x).abs();
    }
  };
  nn::Sequential model;
  model->push_back("twice", TwiceImpl());
  const auto x = torch::rand({2, 8});
  {
    Report report(*model, work_only());
    {
      const auto recording = report.record();
      model->forward(x);
    }
    const auto results = report.results();
    BOOST_REQUIRE(results.not_counted.size() == 2U);
    BOOST_TEST(results.not_counted[0].function == "aten::_fft_r2c");
    BOOST_TEST(results.not_counted[0].module == "twice");
    BOOST_TEST(results.not_counted[1].function == "report_test::twice");
    BOOST_TEST(results.not_counted[1].calls == 1);
    BOOST_TEST(results.root.forward.work.macs == 0);
  }
  Report report(*model,
                work_only().formula("report_test::twice", [](const auto& arguments, const auto& results) {
                  BOOST_TEST(results[0].toTensor().numel() == 16);
                  return arguments[0].toTensor().numel();
                }));
  {
    const auto recording = report.record();
    model->forward(x);
  }
  BOOST_TEST(report.results().root.forward.work.macs == 16);
  BOOST_TEST(report.results().not_counted.size() == 1U);
}

BOOST_AUTO_TEST_CASE(bytes_are_those_that_operations_read_and_write) {
  nn::Sequential model(nn::Functional([](const at::Tensor& x) { return torch::mm(x.t(), x).relu_(); }));
  Report report(*model, work_only());
  {
    const auto recording = report.record();
    model->forward(torch::rand({8, 4}));
  }
  const auto work = report.results().root.forward.work;
  // t() is a view; mm reads 8x4 twice and writes 4x4; relu_ reads and writes that.
  BOOST_TEST(work.bytes == 4 * (2 * 32 + 16 + 2 * 16));
  BOOST_TEST(work.operations == 3);
}

BOOST_AUTO_TEST_CASE(a_parameter_that_two_modules_share_counts_once) {
  struct TiedImpl : nn::Module {
    nn::Linear a{nn::LinearOptions(4, 4).bias(false)}, b{nn::LinearOptions(4, 4).bias(false)};
    TiedImpl() {
      register_module("a", a);
      register_module("b", b);
      b->weight = b->register_parameter("weight2", a->weight);
    }
  };
  TiedImpl model;
  const auto root = Report(model).results().root;
  BOOST_TEST(root.parameters == 16 + 16);  // a.weight, which is b.weight2, and b.weight
  BOOST_TEST(root.children.at(0).parameters == 16);
  BOOST_TEST(root.children.at(1).parameters == 32);
}

#ifndef __SANITIZE_THREAD__  // see extras/torchscript/tests/script/values_test.cpp
BOOST_AUTO_TEST_CASE(forks_of_torchscript_belong_to_their_modules) {
  auto model = torch::jit::load(model_file("fork"));
  for (int i = 0; i < 5; ++i) {
    const auto results = measured(model, {torch::rand({3, 8})});
    BOOST_TEST(results.root.forward.work.macs == 2 * 3 * 8 * 16);
    BOOST_TEST(row(results, "left").forward.work.macs == 3 * 8 * 16);
    BOOST_TEST(row(results, "right").forward.work.macs == 3 * 8 * 16);
    BOOST_TEST(results.outside_forward.macs == 0);
  }
}
#endif

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
