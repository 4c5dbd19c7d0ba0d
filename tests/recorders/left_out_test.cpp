// Samples that a reduction or a file cannot take.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <thread>

#include <torchtap/base/capture.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/save.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(left_out)

using namespace torchtap::recorders;
using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap::storage::SaveOptions;
using torchtap_test::contains;
using Folder = torchtap_test::TemporaryDirectory;

/// Returns what `make` makes of its input.
struct MakesImpl : torch::nn::Module {
  std::function<at::Tensor(const at::Tensor&)> make = [](const at::Tensor& x) { return x; };
  at::Tensor forward(const at::Tensor& x) { return make(x); }
};
TORCH_MODULE(Makes);

at::Tensor nested(const at::Tensor& x) {
  return at::_nested_tensor_from_mask(x.unsqueeze(0).expand({2, -1, -1}),
                                      at::ones({2, x.size(0)}, at::kBool));
}

BOOST_AUTO_TEST_CASE(a_nested_output_costs_no_other_module_its_recording) {
  Makes odd;
  torch::nn::Sequential model(torch::nn::Identity(), odd);
  ForwardOutput sums(RecorderOptions().reduction(parse("moments,log_histogram,blocks")));
  sums.modules(*model, torchtap::selectors::names("0", "1"));
  const at::Tensor x = torch::ones({3, 4});
  odd->make = nested;
  for (int i = 0; i < 2; ++i) model->forward(x);
  BOOST_TEST(sums[0].samples() == 2);
  BOOST_TEST(sums[1].samples() == 0);
  BOOST_TEST(sums[1].left_out() == 2);
  BOOST_TEST(contains(sums[1].note(), "2 of its samples were left out: "), sums[1].note());
  BOOST_TEST(contains(sums[1].note(), "a nested tensor; pad it"), sums[1].note());

  const Folder folder;
  sums.save(folder.path(), SaveOptions().overwrite(true));
  const auto recording = torchtap::storage::load(folder.path());
  BOOST_TEST(recording.at(1).note() == sums[1].note());
  sums.reset();
  BOOST_TEST(sums[1].left_out() == 0);
  BOOST_TEST(sums[1].note().empty());
}

BOOST_AUTO_TEST_CASE(kept_tensors_that_no_file_can_hold_are_none_in_it) {
  const at::Tensor x = torch::ones({3, 4});
  const auto fill = [&](Recorder& kept) {
    Makes odd;
    torch::nn::Sequential model(torch::nn::Identity(), odd);
    kept.modules(*model, torchtap::selectors::names("0", "1"));
    model->forward(x);
    for (const auto& make : {+[](const at::Tensor& one) { return nested(one); },
                             +[](const at::Tensor& one) { return at::Tensor(one.to_sparse()); },
                             +[](const at::Tensor& one) { return at::Tensor(one.to_mkldnn()); }}) {
      odd->make = make;
      model->forward(x);
    }
  };
  const auto check = [&](const std::string& path, const std::string& why) {
    const auto recording = torchtap::storage::load(path);
    BOOST_TEST(recording.at(0).samples() == 4);
    BOOST_TEST(recording.at(1).samples() == 4);
    BOOST_TEST(recording.at(0).note().empty());
    BOOST_TEST(contains(recording.at(1).note(), why), recording.at(1).note());
    const auto samples = recording.at(1).tensors();
    BOOST_REQUIRE(samples.size() == 4u);
    BOOST_TEST(samples[0].equal(x));
    for (std::size_t i = 1; i < 4; ++i) BOOST_TEST(!samples[i].defined());
  };
  const Folder folder;
  ForwardOutput kept;
  fill(kept);
  BOOST_TEST(kept[1].tensors()[2].is_sparse());  // in memory they are what they were
  kept.save(folder / "kept", SaveOptions().mkdir(true));
  check(folder / "kept", "3 of its tensors have no plain bytes");

  const auto spooling = torchtap::storage::SpoolOptions().mkdir(true);
  ForwardOutput spooled(RecorderOptions().spool(folder / "spooled", spooling));
  fill(spooled);
  spooled.save(folder / "spooled");
  check(folder / "spooled", "3 of its samples were left out: files cannot hold a nested tensor");
  BOOST_TEST(spooled[1].left_out() == 3);

  ForwardOutput moved(
      RecorderOptions().memory_budget(400, folder / "moved", spooling));  // full at the eighth sample
  fill(moved);
  moved.flush();
  moved.save(folder / "moved");
  check(folder / "moved", "3 of its samples were left out");
}

BOOST_AUTO_TEST_CASE(threads_leave_out_what_does_not_fit) {
  torch::nn::Sequential model(torch::nn::Identity{});
  ForwardOutput sums(Sum{});
  sums.modules(*model, torchtap::selectors::names("0"));
  model->forward(torch::ones({3}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) model->forward(torch::ones({(i + t) % 4 == 0 ? 2 : 3}));
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(sums[0].samples() == 1 + 600);
  BOOST_TEST(sums[0].left_out() == 200);
  BOOST_TEST(sums[0].tensor().equal(torch::full({3}, 601.0F)));
}

BOOST_AUTO_TEST_CASE(what_the_program_asked_for_is_still_an_error) {
  torch::nn::Sequential model(torch::nn::Identity{});
  ForwardOutput rows(Sum(SumOptions().over({1})));
  rows.modules(*model, torchtap::selectors::names("0"));
  BOOST_CHECK_THROW(model->forward(torch::ones({3})),
                    c10::ValueError);  // the first sample has no dimension 1
  model->forward(torch::ones({3, 2}));
  BOOST_CHECK_NO_THROW(model->forward(torch::ones({3})));
  BOOST_TEST(rows[0].left_out() == 1);
  rows.detach();
  ForwardOutput strict(Sum(SumOptions().non_finite(NonFinite::raise)));
  strict.modules(*model, torchtap::selectors::names("0"));
  BOOST_CHECK_THROW(model->forward(torch::full({3}, NAN)), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(errors_of_conditions_name_the_module_and_contexts_refuse_a_name_twice) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2));
  const auto fail = [] { TORCH_CHECK_VALUE(false, "own words"); };
  ForwardOutput nullary(torchtap::recorders::RecorderOptions().condition([&] {
    fail();
    return true;
  }));
  ForwardOutput unary(torchtap::recorders::RecorderOptions().condition([&](const Sample&) {
    fail();
    return true;
  }));
  for (auto* recorder : {&nullary, &unary}) {
    recorder->attach(model, "0");
    const auto error = torchtap_test::error_of([&] { model->forward(torch::ones({3})); });
    BOOST_TEST(contains(error, "own words"), error);
    BOOST_TEST(contains(error, "in the condition of ForwardOutput \"0\" (Linear)"), error);
    recorder->detach();
  }
  const auto x = torch::ones({3});
  BOOST_CHECK_THROW(const Context named(Context::Names{{"a", x}, {"b", x}, {"a", x}}), c10::ValueError);
  BOOST_TEST(!Context::find("b").defined());
}

/// A gradient that no hook can see ends no forward.
BOOST_AUTO_TEST_CASE(a_gradient_that_cannot_be_reported_is_left_out_and_counted) {
  Makes odd;
  odd->make = [](const at::Tensor& x) { return at::_sparse_sum(x); };
  torch::nn::Sequential model(odd);
  int errors = 0;
  torchtap::recorders::BackwardInput gradients,
      told(torchtap::recorders::RecorderOptions().on_error(
          [&](const std::string&path, const std::exception_ptr&error) {
            BOOST_TEST(path == "0");
            BOOST_CHECK_THROW(std::rethrow_exception(error), c10::Error);
            ++errors;
          }));
  torchtap::recorders::BackwardInput second(torchtap::recorders::RecorderOptions().slot(1));
  for (auto* recorder : {&gradients, &told, &second}) recorder->attach(model, "0");
  const at::Tensor x = torch::eye(3).to_sparse().requires_grad_();
  for (int i = 0; i < 2; ++i) model->forward(x).backward();
  BOOST_TEST(x.grad().defined());
  BOOST_TEST(gradients[0].samples() == 0);
  BOOST_TEST(gradients[0].left_out() == 2);
  BOOST_TEST(gradients[0].events() == 2);
  BOOST_TEST(contains(gradients[0].note(), "2 of its samples were left out: input 0 is of layout Sparse"),
             gradients[0].note());
  BOOST_TEST(errors == 2);
  BOOST_TEST(told[0].left_out() == 2);
  BOOST_TEST(second[0].events() == 0);
}

/// A graph computes nothing while it is captured, and everything again in each replay.
BOOST_AUTO_TEST_CASE(a_stream_that_captures_a_graph_is_an_error_that_names_the_module) {
  const at::Device device(c10::kPrivateUse1, 0);
  const at::Tensor there = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<float>(), device);
  Makes odd;
  torch::nn::Sequential model(odd);
  ForwardOutput sums(Sum{}), kept;
  sums.modules(*model, torchtap::selectors::names("0"));
  model->forward(torch::ones({3}));
  odd->make = [&](const at::Tensor&) { return there; };
  torchtap::base::set_capturing([](const at::Device& asked) { return asked.type() == c10::kPrivateUse1; });
  const auto error = torchtap_test::error_of([&] { model->forward(torch::ones({3})); });
  sums.detach();
  kept.modules(*model, torchtap::selectors::names("0"));
  BOOST_CHECK_THROW(model->forward(torch::ones({3})), c10::NotImplementedError);
  odd->make = [](const at::Tensor& x) { return x; };
  BOOST_CHECK_NO_THROW(model->forward(torch::ones({3})));  // nothing is asked of the CPU
  torchtap::base::set_capturing(nullptr);
  BOOST_TEST(contains(error, "ForwardOutput \"0\""), error);
  BOOST_TEST(contains(error, "captures a graph"), error);
  BOOST_TEST(sums[0].samples() == 1);
  BOOST_TEST(kept[0].samples() == 1);
}

/// Runs a module again in backward, as checkpoints do.
struct Again : torch::autograd::Function<Again> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x,
                            torch::nn::Sequential* model) {
    context->saved_data["x"] = x;
    context->saved_data["model"] = reinterpret_cast<std::int64_t>(model);
    const torch::NoGradGuard no_grad;
    return (*model)->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* const model = reinterpret_cast<torch::nn::Sequential*>(context->saved_data["model"].toInt());
    const at::Tensor x = context->saved_data["x"].toTensor().detach().requires_grad_();
    const torch::AutoGradMode grad(true);
    (*model)->forward(x).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

BOOST_AUTO_TEST_CASE(a_forward_that_backward_runs_again_does_not_know_the_names) {
  torch::nn::Sequential model(torch::nn::Linear(4, 3));
  ForwardOutput counts(by("labels", Count(CountOptions().over({0}))));
  counts.modules(*model, torchtap::selectors::names("0"));
  const at::Tensor x = torch::randn({5, 4}, torch::requires_grad()), labels = at::arange(5);
  at::Tensor y;
  {
    const Context named("labels", labels);
    y = Again::apply(x, &model);
  }
  BOOST_CHECK_NO_THROW(y.sum().backward());
  BOOST_TEST(x.grad().defined());
  BOOST_TEST(counts[0].samples() == 1);
  BOOST_TEST(counts[0].left_out() == 1);
  BOOST_TEST(contains(counts[0].note(), "name it around the backward, too"), counts[0].note());
  {
    const Context named("labels", labels);
    Again::apply(x, &model).sum().backward();
  }
  BOOST_TEST(counts[0].samples() == 3);
  BOOST_CHECK_THROW(model->forward(x), c10::Error);  // a forward without the name is the program's mistake
}

BOOST_AUTO_TEST_SUITE_END()
