// Recorders that group by labels that the program names around a forward.
#include <boost/test/unit_test.hpp>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <sstream>
#include <thread>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>

BOOST_AUTO_TEST_SUITE(by_labels)

using torchtap::core::Context;
using namespace torchtap::recorders;
using namespace torchtap::reductions;

namespace {

ForwardOutput grouped() {
  return ForwardOutput(by("labels", 4, Moments(MomentsOptions().over({0}))));
}

}  // namespace

BOOST_AUTO_TEST_CASE(threads_with_labels_of_their_own_make_one_result_that_resumes) {
  torch::NoGradGuard no_grad;
  at::manual_seed(2);
  torch::nn::Sequential model(torch::nn::Linear(5, 6), torch::nn::ReLU());
  const at::Tensor x = at::randn({40, 16, 5}), labels = at::randint(-1, 4, {40, 16}, at::kLong);
  auto recorder = grouped();
  recorder.attach(model, torchtap::selectors::names("1"));
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&, worker] {
      torch::NoGradGuard none;
      for (int i = worker; i < 40; i += 4) {
        const Context named("labels", labels[i]);
        model->forward(x[i]);
      }
    });
  }
  for (auto& one : workers) one.join();
  const at::Tensor outputs = x.view({640, 5}).mm(model[0]->as<torch::nn::Linear>()->weight.t()) +
                             model[0]->as<torch::nn::Linear>()->bias;
  const auto results = recorder[0].results();
  for (int key = 0; key < 4; ++key) {
    const at::Tensor rows = outputs.relu().to(at::kDouble).index({labels.view({640}) == key});
    BOOST_TEST(results.at("labels.count")[key].item<std::int64_t>() == rows.size(0));
    BOOST_TEST(at::allclose(results.at("mean")[key], rows.mean(0), 1e-5, 1e-6));
    BOOST_TEST(at::allclose(results.at("variance")[key], rows.var(0), 1e-4, 1e-6));
  }
  BOOST_TEST(results.at("labels.left_out").item<std::int64_t>() == labels.eq(-1).sum().item<std::int64_t>());

  std::stringstream stream;
  recorder.snapshot(stream);
  auto again = grouped();
  again.attach(model, torchtap::selectors::names("1"));
  again.restore(stream);
  BOOST_TEST((again[0].results() == results));
}

BOOST_AUTO_TEST_CASE(gradients_have_the_names_of_their_forward) {
  at::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Linear(5, 6), torch::nn::ReLU());
  BackwardOutput recorder(by("labels", Sum(SumOptions().over({0}))));
  recorder.attach(model, torchtap::selectors::names("1"));
  const at::Tensor x = at::randn({2, 8, 5}), labels = at::randint(-1, 3, {2, 8}, at::kLong),
                   gradients = at::randn({2, 8, 6});
  std::vector<at::Tensor> outputs;
  for (int i = 0; i < 2; ++i) {
    const Context named("labels", labels[i]);
    outputs.push_back(model->forward(x[i]));
  }
  const Context other("labels", at::full({8}, 9, at::kLong));
  std::thread([&] {  // in reverse order, when their contexts have ended
    for (int i = 1; i >= 0; --i) outputs[i].backward(gradients[i]);
  })
      .join();
  const auto results = recorder[0].results();
  BOOST_TEST(results.at("labels").equal(at::arange(3)));
  for (int key = 0; key < 3; ++key)
    BOOST_TEST(at::allclose(results.at("value")[key], gradients.index({labels == key}).sum(0)));
}

BOOST_AUTO_TEST_CASE(a_name_that_is_missing_is_an_error_of_the_forward) {
  torch::NoGradGuard no_grad;
  torch::nn::Sequential model(torch::nn::Linear(5, 6));
  auto recorder = grouped();
  recorder.attach(model, torchtap::selectors::names("0"));
  BOOST_CHECK_EXCEPTION(model->forward(at::ones({2, 5})), c10::Error, [](const c10::Error& error) {
    return std::string(error.what_without_backtrace()).find("core::Context named(\"labels\", tensor)") !=
           std::string::npos;
  });
  BOOST_TEST(recorder[0].results().empty());
}

BOOST_AUTO_TEST_SUITE_END()
