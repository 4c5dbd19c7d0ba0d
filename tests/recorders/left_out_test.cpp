// Samples that a reduction or a file cannot take.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include <torchtap/base/capture.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/recover.hpp>
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
  check(folder / "kept", "3 of its samples were left out: files cannot hold a nested tensor");

  const auto spooling = torchtap::storage::SpoolOptions().mkdir(true);
  ForwardOutput spooled(RecorderOptions().spool(folder / "spooled", spooling));
  fill(spooled);
  spooled.save(folder / "spooled");
  check(folder / "spooled", "3 of its samples were left out: files cannot hold a nested tensor");
  BOOST_TEST(spooled[1].left_out() == 3);
  BOOST_TEST(spooled[1].events() == 4);  // each of them is a sample, None in the file

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

/// A recorder of one module, which gets batches of so many rows.
struct Rows {
  explicit Rows(RecorderOptions options) : outputs(std::move(options)) { attach(); }
  void attach() { outputs.modules(*model, torchtap::selectors::names("0")); }
  Rows& run(std::initializer_list<std::int64_t> batches) {
    for (const std::int64_t rows : batches) model->forward(torch::full({rows, 2}, 1.0));
    return *this;
  }
  torch::nn::Sequential model{torch::nn::Identity{}};
  ForwardOutput outputs;
};

RecorderOptions means() {
  return RecorderOptions().reduction(Mean{});
}

BOOST_AUTO_TEST_CASE(a_resumed_recorder_counts_as_an_uninterrupted_one) {
  const Folder folder;
  Rows whole(means()), before(means()), after(means()), other(means());
  whole.run({2, 3, 5, 2, 7});
  before.run({2, 3, 5}).outputs.snapshot(folder / "snapshot");
  after.run({2, 9, 9}).outputs.restore(folder / "snapshot");  // replaces what was there
  after.run({2, 7});
  const auto check = [&](const auto& got) {
    BOOST_TEST(got.samples() == 2);
    BOOST_TEST(got.note() == whole.outputs[0].note());
    BOOST_TEST(contains(got.note(), "3 of its samples were left out: "), got.note());
  };
  check(after.outputs[0]);
  BOOST_TEST(after.outputs[0].left_out() == 3);
  BOOST_TEST(after.outputs[0].events() == 5);
  after.outputs.save(folder / "saved", SaveOptions().mkdir(true));
  check(torchtap::storage::load(folder / "saved").at(0));
  BOOST_TEST(torchtap::storage::load(folder / "saved").at(0).not_recorded().left_out == 3);

  // A snapshot in which nothing is missing: nothing is missing in the recorder any more.
  other.run({4}).outputs.snapshot(folder / "snapshot");
  after.outputs.restore(folder / "snapshot");
  BOOST_TEST(after.outputs[0].left_out() == 0);
  BOOST_TEST(after.outputs[0].note() == "");
  BOOST_TEST(after.outputs[0].events() == 1);
}

BOOST_AUTO_TEST_CASE(a_callable_leaves_out_what_does_not_fit_also_after_a_restore) {
  const auto sum = [] {
    return RecorderOptions().reduction([](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  };
  const Folder folder;
  Rows rows(sum()), resumed(sum());
  rows.run({4, 1, 5, 4});
  BOOST_TEST(rows.outputs[0].samples() == 2);
  BOOST_TEST(rows.outputs[0].left_out() == 2);
  BOOST_TEST(rows.outputs[0].tensor().equal(torch::full({4, 2}, 2.0)));
  rows.outputs.snapshot(folder / "snapshot");
  resumed.outputs.restore(folder / "snapshot");
  resumed.run({1, 4});
  BOOST_TEST(resumed.outputs[0].left_out() == 3);
  BOOST_TEST(resumed.outputs[0].tensor().equal(torch::full({4, 2}, 3.0)));
}

BOOST_AUTO_TEST_CASE(what_a_condition_and_a_budget_turn_away_is_data_too) {
  const Folder folder;
  const auto options = [] {
    return RecorderOptions()
        .memory_budget(100, torchtap::recorders::OverBudget::drop)
        .condition([](const torchtap::recorders::Sample& sample) { return sample.tensor().size(0) != 1; });
  };
  Rows rows(options()), resumed(options());
  rows.run({1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  const std::int64_t dropped = rows.outputs[0].dropped(), kept = rows.outputs[0].samples();
  BOOST_REQUIRE(dropped > 0);
  BOOST_REQUIRE(kept + dropped == 10);
  const std::string note = c10::str(dropped, " of its samples were dropped for lack of room.");
  BOOST_TEST(rows.outputs[0].note() == note);
  rows.outputs.snapshot(folder / "snapshot");
  resumed.outputs.restore(folder / "snapshot");
  BOOST_TEST(resumed.outputs[0].dropped() == dropped);
  BOOST_TEST(resumed.outputs[0].events() == 11);
  resumed.outputs.save(folder / "saved", SaveOptions().mkdir(true));
  const auto recording = torchtap::storage::load(folder / "saved");
  BOOST_TEST(recording.at(0).dropped() == dropped);
  BOOST_TEST(recording.at(0).not_recorded().refused == 1);
  BOOST_TEST(recording.at(0).note() == note);
}

BOOST_AUTO_TEST_CASE(merged_and_continued_recordings_have_the_sums) {
  const Folder folder;
  const auto spool = [&](const std::string& name, bool append = false) {
    return RecorderOptions().spool(folder / name,
                                   torchtap::storage::SpoolOptions().mkdir(true).append(append).sync(false));
  };
  const auto merged = [&](std::vector<std::string> parts) {
    for (std::string& part : parts) part = folder / part;
    const auto save = SaveOptions().mkdir(true).overwrite(true).sync(false);
    torchtap::storage::merge(parts, folder / "merged", torchtap::reductions::restore,
                             torchtap::storage::MergeOptions().save(save).at_once(2));
    return torchtap::storage::load(folder / "merged");
  };
  // 1, 5, 0 and 3 are left out.
  const std::vector<std::initializer_list<std::int64_t>> runs{
      {2, 3}, {2, 3, 3, 3, 3, 3}, {2, 2}, {2, 3, 4, 5}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Rows(means()).run(runs[i]).outputs.save(folder / c10::str("mean", i), SaveOptions().mkdir(true));
  }
  const auto means_of_all = merged({"mean0", "mean1", "mean2", "mean3"});
  BOOST_TEST(means_of_all.at(0).not_recorded().left_out == 9);
  BOOST_TEST(contains(means_of_all.at(0).note(), "9 of its samples were left out: "),
             means_of_all.at(0).note());

  // Files cannot hold these: 2 and 4 of them.
  const auto odd = [&](const RecorderOptions& options, int count) {
    Makes makes;
    torch::nn::Sequential model(makes);
    makes->make = nested;
    ForwardOutput kept(options);
    kept.modules(*model, torchtap::selectors::names("0"));
    for (int i = 0; i < count; ++i) model->forward(torch::ones({3, 4}));
    kept.flush();
    // A killed program leaves this.
    std::filesystem::copy(folder / (count == 2 ? "two" : "four"), folder / c10::str("cut", count));
    kept.save(folder / (count == 2 ? "two" : "four"));
  };
  odd(spool("two"), 2);
  odd(spool("four"), 4);
  BOOST_TEST(merged({"two", "four"}).at(0).not_recorded().none == 6);
  BOOST_TEST(contains(merged({"two", "four"}).at(0).note(), "6 of its samples were left out: "));
  BOOST_TEST(!torchtap::storage::load(folder / "cut4").complete());
  BOOST_TEST(torchtap::storage::load(folder / "cut4").at(0).not_recorded().none == 4);
  torchtap::storage::recover(folder / "cut4");
  BOOST_TEST(torchtap::storage::load(folder / "cut4").complete());
  BOOST_TEST(torchtap::storage::load(folder / "cut4").at(0).not_recorded().none == 4);

  std::filesystem::remove_all(folder / "cut4");
  odd(spool("four", /*append=*/true), 4);
  BOOST_TEST(torchtap::storage::load(folder / "four").at(0).not_recorded().none == 8);
  BOOST_TEST(torchtap::storage::load(folder / "cut4").at(0).not_recorded().none == 8);
}

BOOST_AUTO_TEST_SUITE_END()
