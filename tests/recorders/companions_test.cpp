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
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/save.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(by_labels)

using torchtap::core::Context;
using namespace torchtap::recorders;
using namespace torchtap::reductions;

namespace {

const auto kQuick = torchtap::storage::SaveOptions().mkdir(true).sync(false);

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

/// Each thread has keys of its own; every row has one key or is left out.
BOOST_AUTO_TEST_CASE(rows_are_counted_exactly_over_eight_threads_and_files) {
  torch::NoGradGuard no_grad;
  at::manual_seed(4);
  torch::nn::Sequential model(torch::nn::Linear(5, 6), torch::nn::Tanh());
  const at::Tensor x = at::randn({64, 16, 5}), keys = at::randint(-1, 3, {64, 16}, at::kLong);
  const at::Tensor own = keys + (at::arange(64) % 8 * 10).unsqueeze(1) * keys.ge(0);
  const RecorderOptions each = RecorderOptions().reduction(
      by("labels", Series(Count(CountOptions().over({0})), Max(MaxOptions().over({0})))));
  ForwardOutput all(each);
  all.attach(model, torchtap::selectors::names("1"));
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 8; ++worker) {
    workers.emplace_back([&, worker] {
      torch::NoGradGuard none;
      for (int i = worker; i < 64; i += 8) {
        const Context named("labels", own[i]);
        model->forward(x[i]);
      }
    });
  }
  for (auto& one : workers) one.join();
  all.detach();
  const torchtap_test::TemporaryDirectory folder;
  std::vector<std::string> parts;
  for (int worker = 0; worker < 8; ++worker) {  // the same in eight processes that save their part
    ForwardOutput part(each);
    part.attach(model, torchtap::selectors::names("1"));
    for (int i = worker; i < 64; i += 8) {
      const Context named("labels", own[i]);
      model->forward(x[i]);
    }
    parts.push_back(folder / std::to_string(worker));
    part.save(parts.back(), kQuick);
  }
  torchtap::storage::merge(parts, folder / "merged", restore, torchtap::storage::MergeOptions().save(kQuick));
  const auto merged = torchtap::storage::load(folder / "merged");
  const at::Tensor outputs = model->forward(x);
  for (const auto& results : {all[0].results(), restore(merged.at("1").state().at(0)).results()}) {
    const at::Tensor names = results.at("labels"), count = results.at("labels.count");
    BOOST_TEST(names.size(0) == 24);
    for (std::int64_t i = 0; i < 24; ++i) {
      const at::Tensor which = own.eq(names[i]);
      BOOST_TEST(count[i].item<std::int64_t>() == which.sum().item<std::int64_t>());
      BOOST_TEST(at::equal(results.at("max.value")[i], outputs.index({which}).amax(0)));
    }
    BOOST_TEST(count.sum().item<std::int64_t>() == keys.ge(0).sum().item<std::int64_t>());
    BOOST_TEST(results.at("labels.left_out").item<std::int64_t>() == keys.lt(0).sum().item<std::int64_t>());
  }
}

/// Recorders, and those that go on from a snapshot or from a file, have the bits of separate reductions.
BOOST_AUTO_TEST_CASE(recorders_have_the_bits_of_separate_reductions_also_resumed) {
  torch::NoGradGuard no_grad;
  at::manual_seed(6);
  torch::nn::Sequential model(torch::nn::Linear(5, 6), torch::nn::Tanh());
  const auto rows = ParseOptions().over({0});
  const Any each =
      AnySeries({parse("moments,mean,count,max,norm,covariance,quantiles,top_k:2,reservoir:3,ema", rows),
                 parse("histogram:8:-1:1,log_histogram", ParseOptions().over_all(true)),
                 every(2, window(2, Any(Sum(SumOptions().over({0})))))});
  const Any inside = where("mask", by("labels", each));
  ForwardOutput recorder(inside);
  recorder.attach(model, torchtap::selectors::names("1"));
  std::vector<Any> separate(3, each);
  const auto forwards = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const at::Tensor x = at::randn({9, 5}), labels = at::randint(-1, 3, {9}, at::kLong),
                       mask = at::rand({9}) < 0.7;
      const Context named({{"labels", labels}, {"mask", mask}});
      const at::Tensor y = model->forward(x);
      for (std::int64_t key = 0; key < 3; ++key) {
        const at::Tensor chosen = (mask & labels.eq(key)).nonzero().flatten();
        if (chosen.numel() != 0) separate[static_cast<std::size_t>(key)].update(y.index_select(0, chosen));
      }
    }
  };
  const auto same = [&](const Any& got) {
    const auto* const groups = got.get<Where>()->inner().get<By>();
    bool all = groups->keys().size() == 3;
    for (std::int64_t key = 0; key < 3; ++key)
      all = all && groups->at(key).results() == separate[static_cast<std::size_t>(key)].results();
    return all;
  };
  const auto state = [](const ForwardOutput& of) { return restore(of.entries().at(0).state.at(0)); };
  forwards(0, 8);
  BOOST_TEST(same(state(recorder)));

  const torchtap_test::TemporaryDirectory folder;
  recorder.snapshot(folder / "snapshot");
  recorder.save(folder / "saved", kQuick);
  recorder.detach();
  ForwardOutput restored(inside);
  restored.attach(model, torchtap::selectors::names("1"));
  restored.restore(folder / "snapshot");
  ForwardOutput loaded(restore(torchtap::storage::load(folder / "saved").at("1").state().at(0)));
  loaded.attach(model, torchtap::selectors::names("1"));
  forwards(8, 16);
  BOOST_TEST(same(state(restored)));
  BOOST_TEST(same(state(loaded)));
  BOOST_TEST((restored[0].results() == loaded[0].results()));
  BOOST_TEST(restored[0].samples() == 16);
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
