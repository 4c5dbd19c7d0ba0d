// Recorders: what they record, from threads and with errors; values, merging, snapshots.
#include <boost/test/unit_test.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <torch/torch.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/torchtap.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(recorder)

namespace tap = torchtap;
using tap::recorders::BackwardInput;
using tap::recorders::BackwardOutput;
using tap::recorders::ForwardInput;
using tap::recorders::ForwardOutput;
using tap::recorders::ForwardPre;
using tap::recorders::Recorder;
using tap::recorders::RecorderOptions;
using tap::reductions::Moments;
using tap::reductions::Sum;
namespace sel = tap::selectors;
using torchtap_test::says;
using Folder = torchtap_test::TemporaryDirectory;

namespace {

torch::nn::Sequential mlp() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::ReLU(), torch::nn::Linear(5, 4),
                               torch::nn::ReLU(), torch::nn::Linear(4, 3));
}

// Calls its second layer first, the first one twice, and the third one only if asked to.
struct BranchyImpl : torch::nn::Module {
  BranchyImpl() {
    a = register_module("a", torchtap::nn::Linear(4, 4));
    b = register_module("b", torchtap::nn::Linear(4, 4));
    c = register_module("c", torchtap::nn::Linear(4, 4));
  }
  at::Tensor forward(at::Tensor x, bool with_c) {
    x = a(a(b(x)));
    if (throws) throw std::runtime_error("in the middle of forward");
    return with_c ? c(x) : x;
  }
  torchtap::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
  bool throws = false;
};
TORCHTAP_MODULE(Branchy);

}  // namespace

BOOST_AUTO_TEST_CASE(all_five_record_what_a_hand_written_forward_sees) {
  auto model = mlp();
  ForwardPre pre;
  ForwardInput input;
  ForwardOutput output;
  BackwardInput grad_input;
  BackwardOutput grad_output;
  for (Recorder* recorder :
       std::initializer_list<Recorder*>{&pre, &input, &output, &grad_input, &grad_output}) {
    recorder->modules(*model);
    BOOST_TEST(recorder->size() == 6);
  }
  const auto x = torch::randn({2, 6}, torch::requires_grad());
  model->forward(x).pow(2).sum().backward();

  // The same by hand, with retained gradients.
  const auto plain = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  std::vector<at::Tensor> values{x.detach().clone().requires_grad_()};
  for (auto& entry : *plain) values.push_back(entry.forward(values.back()));
  for (auto& value : values) value.retain_grad();
  values.back().pow(2).sum().backward();

  for (int64_t i = 0; i < 6; ++i) {
    const std::size_t in = i == 0 ? 0 : static_cast<std::size_t>(i - 1);
    const std::size_t out = i == 0 ? 5 : static_cast<std::size_t>(i);
    BOOST_TEST(pre[i].tensors().at(0).equal(values[in]));
    BOOST_TEST(input[i].tensors().at(0).equal(values[in]));
    BOOST_TEST(output[i].tensors().at(0).equal(values[out]));
    BOOST_TEST(grad_input[i].tensors().at(0).equal(values[in].grad()));
    BOOST_TEST(grad_output[i].tensors().at(0).equal(values[out].grad()));
    BOOST_TEST(!output[i].tensors().at(0).requires_grad());
    BOOST_TEST(output[i].samples() == 1);
  }
  BOOST_TEST(x.grad().equal(values[0].grad()));
  BOOST_TEST(output.samples() == 6);
  BOOST_TEST(output.kind() == "ForwardOutput");
}

BOOST_AUTO_TEST_CASE(subrecorders_are_in_order_of_attachment_whatever_fires_first) {
  Branchy model;
  ForwardOutput outputs;
  outputs.modules(model, sel::types<torch::nn::Linear>());
  std::vector<int64_t> calls;
  ForwardPre counted(RecorderOptions().condition([&](const tap::recorders::Sample& sample) {
    if (sample.path() == "a") calls.push_back(sample.call_index());
    return true;
  }));
  counted.modules(model, sel::names("a"));
  const auto x = torch::randn({3, 4});
  model(x, false);
  model(x, false);
  BOOST_TEST(outputs[0].name() == "a");
  BOOST_TEST(outputs[0].samples() == 4);
  BOOST_TEST(outputs[1].samples() == 2);
  BOOST_TEST(outputs[2].samples() == 0);
  BOOST_TEST(outputs[1].tensors().at(0).equal(torch::linear(x, model->b->weight, model->b->bias)));
  BOOST_TEST(calls == (std::vector<int64_t>{0, 1, 0, 1}), boost::test_tools::per_element());

  Folder folder;
  outputs.save(folder / "out", tap::storage::SaveOptions().mkdir(true));
  const auto recording = tap::storage::load(folder / "out");
  BOOST_TEST(recording.size() == 3u);
  BOOST_TEST(recording.at("c").samples() == 0);  // in the manifest, too
  BOOST_TEST(recording.at("c").value().is_none());
  BOOST_TEST(recording.at("a").tensors().size() == 4u);
}

BOOST_AUTO_TEST_CASE(attach_remove_attach_in_the_middle_of_training_changes_nothing) {
  const auto train = [](bool record) {
    auto model = mlp();
    torch::optim::SGD sgd(model->parameters(), 0.1);
    std::optional<BackwardInput> gradients;
    std::optional<ForwardOutput> outputs;
    for (int step = 0; step < 30; ++step) {
      if (record && step % 10 == 3) outputs.emplace().modules(*model);
      if (record && step % 10 == 5) gradients.emplace().modules(*model);
      if (record && step % 10 == 7) outputs.reset();
      if (record && step == 25) gradients.reset();
      sgd.zero_grad();
      model->forward(torch::sin(torch::arange(24).reshape({4, 6}) * 0.1 * step)).pow(2).mean().backward();
      sgd.step();
      if (outputs) BOOST_TEST(outputs->at("4").samples() == step % 10 - 2);
    }
    return model->parameters();
  };
  const auto recorded = train(true), plain = train(false);
  for (std::size_t i = 0; i < plain.size(); ++i) BOOST_TEST(recorded[i].equal(plain[i]));
}

BOOST_AUTO_TEST_CASE(eight_threads_give_exact_counts_and_sums) {
  auto model = mlp();
  ForwardPre sums(Sum{});
  ForwardOutput all;
  BackwardOutput gradients(tap::reductions::Count{});
  sums.modules(*model);
  all.modules(*model, sel::names("4"));
  gradients.modules(*model);
  constexpr int kThreads = 8, kCalls = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const auto out = model->forward(torch::full({1, 6}, static_cast<float>(t + 1)));
        if (i % 20 == 0) torch::autograd::grad({out.sum()}, model->parameters());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& subrecorder : sums) BOOST_TEST(subrecorder.samples() == kThreads * kCalls);
  // Small whole numbers: the sum is exact in any order.
  BOOST_TEST(sums.at("").tensor().equal(torch::full({1, 6}, 36.0F * kCalls)));
  BOOST_TEST(all[0].tensors().size() == static_cast<std::size_t>(kThreads * kCalls));
  for (auto& subrecorder : gradients) BOOST_TEST(subrecorder.samples() == kThreads * kCalls / 20);
}

/// Samples of whole numbers, whose sums are exact in any order, from eight threads at the same time.
void feed(torch::nn::Sequential& model, int calls, const std::function<void()>& meanwhile = {}) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&model, calls, t] {
      const torch::NoGradGuard no_grad;
      for (int i = 0; i < calls; ++i)
        model->forward(torch::full({4, 300}, static_cast<float>(t * calls + i)));
    });
  }
  if (meanwhile) meanwhile();
  for (auto& thread : threads) thread.join();
}

BOOST_AUTO_TEST_CASE(threads_fold_in_parallel_into_one_result) {
  using namespace tap::reductions;
  torch::nn::Sequential model(torch::nn::Identity{});
  const Series series(Sum(SumOptions().over({0})), Moments(MomentsOptions().over_all(true)), Min(), Max(),
                      AbsMax(), tap::reductions::Count());
  ForwardPre reduced(series);
  ForwardPre all_slots(RecorderOptions().reduction(series).all_tensors());
  ForwardPre converted(RecorderOptions().reduction(Sum{}).dtype(torch::kDouble));
  ForwardPre in_turn(RecorderOptions().reduction(Sum{}).transform([](const at::Tensor& x) { return x[0]; }));
  ForwardPre last(tap::reductions::Last{});
  for (auto* recorder : {&reduced, &all_slots, &converted, &in_turn, &last})
    recorder->modules(*model, sel::names("0"));
  constexpr int kCalls = 250;
  // Each read merges the thread sinks.
  std::int64_t seen = 0;
  feed(model, kCalls, [&] {
    for (int i = 0; i < 20; ++i) {
      const std::int64_t before = reduced[0].samples();
      if (before == 0) continue;
      const auto elements = reduced[0].tensor("count.elements").item<std::int64_t>() / 1200;
      BOOST_TEST(elements >= before);
      BOOST_TEST(elements >= seen);
      seen = elements;
    }
  });
  Series expected = series;
  for (int i = 0; i < 8 * kCalls; ++i) expected.update(torch::full({4, 300}, static_cast<float>(i)));
  const tap::core::Results want = expected.results();
  for (auto* recorder : {&reduced, &all_slots}) {
    BOOST_TEST((*recorder)[0].samples() == 8 * kCalls);
    const tap::core::Value value = recorder == &reduced ? (*recorder)[0].value() : (*recorder)[0].slot(0);
    for (const auto& [name, tensor] : want) {
      BOOST_TEST_CONTEXT(name) {
        const at::Tensor got = value.at(name).tensor();
        BOOST_TEST(got.scalar_type() == tensor.scalar_type());
        const bool merged_in_another_order = name.rfind("moments.", 0) == 0;
        BOOST_TEST((merged_in_another_order ? at::allclose(got, tensor, 1e-10) : got.equal(tensor)));
      }
    }
  }
  constexpr double kSum = 8.0 * kCalls * (8.0 * kCalls - 1) / 2;
  BOOST_TEST(converted[0].tensor().equal(torch::full({4, 300}, kSum, torch::kDouble)));
  BOOST_TEST(in_turn[0].tensor().equal(torch::full({300}, kSum)));
  BOOST_TEST(last[0].samples() == 8 * kCalls);
}

/// Reductions that threads fold into side by side, and in turn.
BOOST_AUTO_TEST_CASE(values_that_are_taken_while_threads_record_lose_nothing) {
  torch::nn::Sequential model(torch::nn::Identity{});
  ForwardPre counts(RecorderOptions().reduction(tap::reductions::Count{}).all_tensors());
  ForwardPre kept(RecorderOptions().transform([](const at::Tensor& x) { return x.flatten()[0]; }));
  for (auto* recorder : {&counts, &kept}) recorder->modules(*model, sel::names("0"));
  BOOST_TEST(counts[0].take().is_none());
  std::int64_t elements = 0, samples = 0;
  double sum = 0;
  const auto take = [&] {
    const tap::core::Value value = counts[0].take(), list = kept[0].take();
    if (!value.is_none()) elements += value.at("0").at("elements").tensor().item<std::int64_t>();
    if (list.is_none()) return;
    for (const at::Tensor& one : list.tensors()) {
      sum += one.item<double>();
      ++samples;
    }
  };
  constexpr int kCalls = 250;
  feed(model, kCalls, [&] {
    for (int i = 0; i < 200; ++i) take();
  });
  take();
  BOOST_TEST(elements == 8 * kCalls * 1200);
  BOOST_TEST(samples == 8 * kCalls);
  BOOST_TEST(sum == 8.0 * kCalls * (8.0 * kCalls - 1) / 2);
  BOOST_TEST(counts[0].samples() == 0);
  BOOST_TEST(counts[0].take().is_none());
  BOOST_TEST(kept.samples() == 0);
}

BOOST_AUTO_TEST_CASE(an_incompatible_sample_is_refused_in_the_thread_that_records_it) {
  torch::nn::Sequential model(torch::nn::Identity{});
  std::atomic<int> refused{0};
  ForwardPre sums(RecorderOptions().reduction(Sum{}).on_error(
      [&](const std::string&, const std::exception_ptr&) { refused.fetch_add(1); }));
  sums.modules(*model, sel::names("0"));
  model->forward(torch::ones({3}));
  constexpr int kCalls = 400;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) model->forward(torch::ones({(i + t) % 4 == 0 ? 2 : 3}));
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(refused.load() == 8 * kCalls / 4);
  BOOST_TEST(sums[0].tensor().equal(torch::full({3}, 1.0F + 8 * kCalls * 3 / 4)));
  BOOST_TEST(sums[0].samples() == 1 + 8 * kCalls * 3 / 4);
}

BOOST_AUTO_TEST_CASE(reset_and_values_set_by_hand_include_samples_of_other_threads) {
  torch::nn::Sequential model(torch::nn::Identity{});
  ForwardPre counts(tap::reductions::Count{});
  counts.modules(*model, sel::names("0"));
  const auto counted = [&] { return counts[0].tensor("elements").item<std::int64_t>() / 1200; };
  feed(model, 200, [&] {
    for (int i = 0; i < 50; ++i) counts.reset();
  });
  // The samples after the last reset are there, and their count is right.
  BOOST_TEST((counts[0].samples() == 0 || counted() == counts[0].samples()));
  counts.reset();
  feed(model, 50);
  BOOST_TEST(counted() == 400);

  std::stringstream stream;
  counts.snapshot(stream);
  feed(model, 50);
  BOOST_TEST(counted() == 800);
  counts.restore(stream);
  BOOST_TEST(counted() == 400);
  BOOST_TEST(counts.samples() == 400);

  std::atomic<int> refused{0};
  ForwardPre doubled(
      RecorderOptions()
          .reduction(tap::reductions::Moments{})
          .on_error([&](const std::string&, const std::exception_ptr&) { refused.fetch_add(1); }));
  doubled.modules(*model, sel::names("0"));
  feed(model, 50);
  doubled.apply([](const at::Tensor& x) { return x * 2; });
  const auto mean = doubled[0].tensor("mean");
  feed(model, 50);
  BOOST_TEST(refused.load() == 400);
  BOOST_TEST(doubled[0].tensor("mean").equal(mean));
}

BOOST_AUTO_TEST_CASE(merging_into_a_recorder_that_records_loses_nothing) {
  torch::nn::Sequential model(torch::nn::Identity{});
  ForwardPre source(Sum{}), sums(Sum{}), all_source, all;
  for (auto* recorder : {&source, &all_source}) recorder->modules(*model, sel::names("0"));
  model->forward(torch::full({4, 300}, 1000.0F));
  source.detach();
  all_source.detach();
  for (auto* recorder : {&sums, &all}) recorder->modules(*model, sel::names("0"));
  constexpr int kCalls = 50, kMerges = 100;
  feed(model, kCalls, [&] {
    for (int i = 0; i < kMerges; ++i) {
      sums.merge(source);
      all.merge(all_source);
    }
  });
  constexpr double kSum = 8.0 * kCalls * (8.0 * kCalls - 1) / 2 + 1000.0 * kMerges;
  BOOST_TEST(sums[0].tensor().equal(torch::full({4, 300}, kSum)));
  BOOST_TEST(sums[0].samples() == 8 * kCalls + kMerges);
  BOOST_TEST(torch::stack(all[0].tensors()).sum(0).equal(torch::full({4, 300}, kSum)));
  BOOST_TEST(all[0].samples() == 8 * kCalls + kMerges);
}

BOOST_AUTO_TEST_CASE(exceptions_leave_recorder_and_model_usable) {
  Branchy model;
  const auto x = torch::randn({2, 4});
  ForwardOutput outputs;
  outputs.modules(model, sel::names("a", "b"));
  model->throws = true;
  BOOST_CHECK_THROW(model(x, false), std::runtime_error);
  BOOST_TEST(outputs.at("a").samples() == 2);
  model->throws = false;
  model(x, false);
  BOOST_TEST(outputs.at("a").samples() == 4);

  bool fail = true;
  ForwardPre in_condition(RecorderOptions().condition([&]() -> bool {
    if (fail) throw std::logic_error("in the condition");
    return true;
  }));
  in_condition.modules(model, sel::names("a"));
  BOOST_CHECK_THROW(model(x, false), std::logic_error);
  fail = false;
  model(x, false);
  BOOST_TEST(in_condition[0].samples() == 2);
  in_condition.detach();

  fail = true;
  ForwardPre in_fold(RecorderOptions().reduction([&](const at::Tensor& a, const at::Tensor& b) {
    if (fail) throw std::logic_error("in the reduction");
    return a + b;
  }));
  in_fold.modules(model, sel::names("b"));
  model(x, false);  // the first sample is not folded
  BOOST_CHECK_THROW(model(x, false), std::logic_error);
  BOOST_TEST(in_fold[0].samples() == 1);
  fail = false;
  model(x, false);
  BOOST_TEST(in_fold[0].samples() == 2);
  BOOST_TEST(in_fold[0].tensor().equal(x + x));
}

BOOST_AUTO_TEST_CASE(another_shape_is_left_out_counted_and_said) {
  auto model = mlp();
  ForwardOutput sums(Sum{});
  sums.modules(*model, sel::names("2"));
  model->forward(torch::ones({2, 6}));
  const auto before = sums[0].tensor();
  BOOST_CHECK_NO_THROW(model->forward(torch::ones({3, 6})));
  BOOST_TEST(sums[0].samples() == 1);
  BOOST_TEST(sums[0].left_out() == 1);
  BOOST_TEST(sums[0].events() == 2);
  for (const char* const part : {"1 of its samples was left out", "[3, 4]", "[2, 4]", "Sum"})
    BOOST_TEST(torchtap_test::contains(sums[0].note(), part), sums[0].note());
  BOOST_TEST(sums.entries()[0].not_recorded.note() == sums[0].note());
  BOOST_TEST(sums[0].tensor().equal(before));
  model->forward(torch::ones({2, 6}));
  BOOST_TEST(sums[0].tensor().equal(before * 2));

  ForwardOutput rows(tap::reductions::Mean(tap::reductions::MeanOptions().over({0})));
  rows.modules(*model, sel::names("2"));
  sums.detach();
  for (const int n : {2, 3, 7}) model->forward(torch::ones({n, 6}));
  BOOST_TEST(rows[0].tensor().sizes() == at::IntArrayRef{4});
}

BOOST_AUTO_TEST_CASE(either_may_be_destroyed_first) {
  ForwardOutput outputs;
  {
    auto model = mlp();
    outputs.modules(*model);
    model->forward(torch::ones({1, 6}));
  }
  BOOST_TEST(outputs.samples() == 6);
  BOOST_TEST(outputs[1].tensors().size() == 1u);
  auto model = mlp();
  const auto uses = model->ptr(0).use_count();
  {
    ForwardOutput gone;
    BackwardInput graph;
    gone.modules(*model);
    graph.modules(*model);
    const auto y = model->forward(torch::ones({1, 6}, torch::requires_grad()));
    graph = BackwardInput();  // the graph outlives the recorder
    y.sum().backward();
  }
  model->forward(torch::ones({1, 6}));
  BOOST_TEST(model->ptr(0).use_count() == uses);
}

BOOST_AUTO_TEST_CASE(in_place_changes_do_not_change_what_was_recorded) {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
                              torch::nn::Linear(4, 1));
  ForwardOutput copies;
  ForwardOutput aliases(RecorderOptions().capture(tap::recorders::Capture::alias));
  BackwardOutput gradients;
  copies.modules(*model, sel::names("0"));
  aliases.modules(*model, sel::indices({1, 2}));
  gradients.modules(*model, sel::names("0"));
  const auto x = torch::randn({8, 4});
  model->forward(x).sum().backward();
  const auto before =
      torch::linear(x, model->at<torch::nn::LinearImpl>(0).weight, model->at<torch::nn::LinearImpl>(0).bias);
  BOOST_TEST(copies[0].tensors().at(0).equal(before));
  BOOST_TEST(before.min().item<float>() < 0);
  const auto weight = model->at<torch::nn::LinearImpl>(2).weight.detach();
  BOOST_TEST(gradients[0].tensors().at(0).equal(weight.expand({8, 4}) * (before > 0)));
  // Output 0 was changed by the ReLU after it was taken as an alias; the ReLU's own output was not.
  BOOST_CHECK_EXCEPTION(aliases.at("0").tensors(), c10::ValueError,
                        says({"\"0\" (Linear)", "alias", "in place"}));
  BOOST_TEST(aliases.at("1").tensors().at(0).equal(before.clamp_min(0)));
}

BOOST_AUTO_TEST_CASE(options_say_which_tensor_and_how) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::LSTM(3, 5));
  using Out = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  ForwardOutput second(RecorderOptions().slot(1)), all(RecorderOptions().all_tensors());
  ForwardOutput missing(RecorderOptions().slot(3));
  ForwardOutput pooled(RecorderOptions()
                           .transform([](const at::Tensor& t) {
                             return t.mean(at::IntArrayRef{0, 1});
                           })
                           .dtype(torch::kDouble)
                           .reduction(Moments{}));
  second.modules(*model, sel::names("0"));
  all.modules(*model, sel::names("0"));
  pooled.modules(*model, sel::names("0"));
  const auto x = torch::randn({4, 2, 3});
  const auto [out, state] = model->forward<Out>(x);
  model->forward<Out>(x);
  BOOST_TEST(second[0].tensors().at(1).equal(std::get<0>(state)));
  BOOST_TEST(all[0].slots() == 3);
  BOOST_TEST(all[0].slot(0).tensors().at(0).equal(out));
  BOOST_TEST(all[0].slot(2).tensors().at(1).equal(std::get<1>(state)));
  BOOST_TEST(all[0].value().at("2").tensors().size() == 2u);
  BOOST_CHECK_THROW(all[0].tensors(), c10::ValueError);
  BOOST_TEST(pooled[0].tensor("mean").scalar_type() == torch::kDouble);
  BOOST_TEST(torch::allclose(pooled[0].tensor("mean"), out.mean(at::IntArrayRef{0, 1}).to(torch::kDouble)));
  BOOST_CHECK_EXCEPTION(pooled[0].tensor(), c10::ValueError, says({"mean", "variance", "by name"}));
  BOOST_CHECK_EXCEPTION(pooled[0].tensor("median"), c10::IndexError, says({"median", "variance"}));
  missing.modules(*model, sel::names("0"));
  BOOST_CHECK_EXCEPTION(model->forward<Out>(x), c10::TypeError,
                        says({"\"0\" (LSTM)", "tensor 3", "3 tensors"}));
}

BOOST_AUTO_TEST_CASE(conditions_see_the_sample) {
  auto model = mlp();
  ForwardOutput large(RecorderOptions().condition([](const tap::recorders::Sample& sample) {
    return sample.sample_index() < 2 && sample.tensor().max().item<float>() > 0.5F;
  }));
  large.modules(*model, sel::names("0"));
  int expected = 0;
  for (int i = 0; i < 20; ++i) {
    const auto x = torch::randn({1, 6});
    const auto out = model->forward(x);
    if (torch::linear(x, model->parameters()[0], model->parameters()[1]).max().item<float>() > 0.5F)
      ++expected;
  }
  BOOST_TEST(expected > 2);
  BOOST_TEST(large[0].samples() == 2);
  BOOST_TEST(large[0].events() == 20);

  // One without arguments is a condition, too, of which its callable alone counts.
  int asked = 0;
  ForwardOutput every_other(RecorderOptions().condition([&] { return ++asked % 2 == 0; }));
  every_other.attach(*model, "0");
  for (int i = 0; i < 6; ++i) model->forward(torch::randn({1, 6}));
  BOOST_TEST(asked == 6);
  BOOST_TEST(every_other[0].samples() == 3);
  BOOST_TEST(static_cast<bool>(every_other.options().condition()));
}

BOOST_AUTO_TEST_CASE(values_can_be_set_and_applied) {
  auto model = mlp();
  ForwardPre sum(Sum{}), moments(Moments{}), list;
  for (Recorder* recorder : std::initializer_list<Recorder*>{&sum, &moments, &list}) {
    recorder->modules(*model, sel::names("0"));
  }
  const auto x = torch::ones({1, 6});
  for (int i = 1; i <= 4; ++i) model->forward(x * i);
  sum.apply_sample([](const at::Tensor& total, int64_t samples) { return total / samples; });
  BOOST_TEST(sum[0].tensor().equal(x * 2.5));
  model->forward(x);
  BOOST_TEST(sum[0].tensor().equal(x * 3.5));  // a sum continues from the value that was set
  sum[0].set(torch::zeros({1, 6}));
  model->forward(x);
  BOOST_TEST(sum[0].tensor().equal(x));
  BOOST_TEST(sum[0].samples() == 6);

  list.apply([](const at::Tensor& sample) { return -sample; });
  BOOST_TEST(list[0].tensors().at(3).equal(-4 * x));
  const auto kept = list[0].samples();
  list[0].set(torchtap::core::Value(std::vector<at::Tensor>{x}));  // each item of a list is a sample
  BOOST_TEST((kept > 1 && list[0].samples() == 1));
  BOOST_TEST(list.entries().at(0).samples == 1);
  moments.apply([](const at::Tensor& result) { return result.sqrt(); });
  BOOST_TEST(moments[0].tensor("variance").defined());
  BOOST_CHECK_EXCEPTION(model->forward(x), c10::ValueError, says({"set by hand", "reset()", "ForwardPre"}));
  moments.reset();
  model->forward(x);
  BOOST_TEST(moments[0].samples() == 1);
}

BOOST_AUTO_TEST_CASE(removing_one_leaves_the_others_right) {
  auto model = mlp();
  ForwardOutput outputs;
  outputs.modules(*model, sel::types<torch::nn::Linear>());
  const auto x = torch::randn({1, 6});
  model->forward(x);
  const auto removed = outputs.remove(0);
  BOOST_TEST(removed.tensors().size() == 1u);
  BOOST_TEST(outputs.size() == 2);
  BOOST_CHECK_EXCEPTION(outputs[0], c10::IndexError, says({"removed"}));
  BOOST_CHECK_THROW(outputs.remove(0), c10::IndexError);
  BOOST_CHECK_THROW(outputs[3], c10::IndexError);
  const auto y = model->forward(x);
  BOOST_TEST(outputs[1].name() == "2");
  BOOST_TEST(outputs[2].tensors().at(1).equal(y));
  std::vector<std::string> names;
  for (auto& subrecorder : outputs) names.push_back(subrecorder.name());
  BOOST_TEST(names == (std::vector<std::string>{"2", "4"}), boost::test_tools::per_element());
  outputs.modules(*model, sel::names("0"));
  BOOST_TEST(outputs[3].name() == "0");
}

BOOST_AUTO_TEST_CASE(attaching_is_all_or_nothing) {
  struct PlainImpl : torch::nn::Module {
    PlainImpl() {
      tapped = register_module("tapped", torchtap::nn::Linear(2, 2));
      plain = register_module("plain", torch::nn::Linear(2, 2));
    }
    torchtap::nn::Linear tapped{nullptr};
    torch::nn::Linear plain{nullptr};
  };
  auto model = std::make_shared<PlainImpl>();
  int calls = 0;
  ForwardOutput outputs(RecorderOptions().condition([&] { return ++calls > 0; }));
  BOOST_CHECK_EXCEPTION(outputs.modules(*model, sel::leaves()), c10::ValueError,
                        says({"\"plain\" (Linear)", "torchtap::nn::Linear", "reachable()"}));
  BOOST_TEST(outputs.empty());
  model->tapped(torch::ones({1, 2}));
  BOOST_TEST(calls == 0);
  outputs.modules(*model, sel::reachable());
  BOOST_TEST(outputs.size() == 1);
  BOOST_CHECK_EXCEPTION(outputs.modules(*model, sel::names("taped")), c10::ValueError,
                        says({"\"taped\"", "\"tapped\""}));
  BOOST_CHECK_EXCEPTION(outputs.at("taped"), c10::IndexError, says({"\"tapped\""}));
}

BOOST_AUTO_TEST_CASE(errors_may_go_to_a_handler_instead_of_the_caller) {
  auto model = mlp();
  std::vector<std::string> paths, messages;
  ForwardOutput sums(RecorderOptions().reduction(Sum{}).on_error(
      [&](const std::string& path, const std::exception_ptr& error) {
        paths.push_back(path);
        try {
          std::rethrow_exception(error);
        } catch (const c10::Error& known) {
          messages.push_back(known.what_without_backtrace());
        }
      }));
  sums.modules(model, sel::names("2"));
  const auto first = model->forward(at::ones({2, 6}));
  BOOST_CHECK_NO_THROW(model->forward(at::ones({3, 6})));  // another shape, which Sum cannot add
  model->forward(at::ones({2, 6}));
  BOOST_TEST(paths == std::vector<std::string>{"2"});
  BOOST_REQUIRE(messages.size() == 1);
  BOOST_TEST(messages[0].find("ForwardOutput") != std::string::npos, messages[0]);
  BOOST_TEST(sums[0].samples() == 2);

  // Stopping a forward is not an error.
  sums.reset();
  BOOST_TEST(sums.until_recorded([&] { model->forward(at::ones({2, 6})); }));
  BOOST_TEST(paths.size() == 1);
}

BOOST_AUTO_TEST_CASE(several_models_and_pipelines_add_subrecorders) {
  auto one = mlp(), two = mlp();
  ForwardOutput outputs;
  outputs.modules(*one, sel::names("0")).children(*two, sel::indices({0, 4}));
  outputs.attach(sel::modules(two) | ranges::views::filter(sel::types<torch::nn::ReLU>()) |
                 ranges::to<std::vector>());
  BOOST_TEST(outputs.size() == 5);
  two->forward(torch::ones({1, 6}));
  BOOST_TEST(outputs[0].samples() == 0);
  BOOST_TEST(outputs[1].samples() == 1);
  BOOST_TEST(outputs[4].samples() == 1);
  BOOST_CHECK_EXCEPTION(outputs.at("0"), c10::IndexError, says({"several", "[0, 1]"}));
}

BOOST_AUTO_TEST_CASE(a_module_that_is_attached_again_goes_on_with_its_subrecorder) {
  auto model = mlp();
  ForwardOutput outputs;
  tap::recorders::BackwardParameter gradients(Sum{});
  for (int round = 1; round <= 3; ++round) {
    {
      const tap::recorders::Scope scope(outputs);
      outputs.attach(model);
      gradients.attach(model, "0");
      model->forward(torch::ones({1, 6})).sum().backward();
    }
    gradients.detach();
    model->forward(torch::ones({1, 6})).sum().backward();
    BOOST_TEST(outputs.size() == 6);
    BOOST_TEST(outputs.at("0").samples() == round);
    BOOST_TEST(gradients.size() == 2);
    BOOST_TEST(gradients.at("0.weight").samples() == round);
  }
  // While it is attached, it is added, as is another model's module of that path.
  outputs.attach(model, "0");
  outputs.attach(model, "0");
  BOOST_TEST(outputs.size() == 7);
  auto other = mlp();
  outputs.detach();
  outputs.attach(other, {"0", "2"});
  BOOST_TEST(outputs.size() == 9);
  other->forward(torch::ones({1, 6}));
  BOOST_TEST(outputs[1].samples() == 3);
  BOOST_TEST(outputs[7].samples() == 1);
  BOOST_TEST(outputs[8].path() == "2");
}

BOOST_AUTO_TEST_CASE(several_models_in_one_recorder_have_names) {
  using tap::recorders::AttachOptions;
  auto teacher = mlp(), student = mlp();
  ForwardOutput outputs;
  outputs.attach(teacher, sel::names("0") || sel::names(""), AttachOptions().name("teacher"));
  outputs.attach(student, "0", AttachOptions().name("student"));
  outputs.attach(student, "2");
  teacher->forward(torch::ones({1, 6}));
  BOOST_TEST(outputs.at("teacher.0").samples() == 1);
  BOOST_TEST(outputs.at("teacher").samples() == 1);
  BOOST_TEST(outputs.at("student.0").samples() == 0);
  BOOST_TEST(outputs.at(3).path() == "2");
  BOOST_TEST(outputs.entries()[2].path == "student.0");
  tap::recorders::BackwardParameter gradients(Sum{});
  gradients.attach(teacher, AttachOptions().name("teacher")).attach(student, AttachOptions().name("student"));
  student->forward(torch::ones({1, 6})).sum().backward();
  BOOST_TEST(gradients.at("student.4.bias").samples() == 1);
  BOOST_TEST(gradients.at("teacher.4.bias").samples() == 0);
}

BOOST_AUTO_TEST_CASE(scopes_remove_what_they_added_and_nothing_else) {
  auto model = mlp();
  ForwardOutput outputs;
  outputs.modules(*model, sel::names("0"));
  try {
    const tap::recorders::Scope scope(outputs);
    outputs.modules(*model, sel::names("2"));
    model->forward(torch::ones({1, 6}));
    throw std::runtime_error("leave");
  } catch (const std::runtime_error&) {
  }
  model->forward(torch::ones({1, 6}));
  BOOST_TEST(outputs.at("0").samples() == 2);
  BOOST_TEST(outputs.at("2").samples() == 1);
}

BOOST_AUTO_TEST_CASE(merge_is_as_if_one_recorder_had_seen_both) {
  auto model = mlp();
  const auto run = [&](Recorder& recorder, int from, int to) {
    recorder.modules(*model);
    for (int i = from; i < to; ++i) model->forward(torch::sin(torch::arange(6).reshape({1, 6}) * i));
    recorder.detach();
  };
  ForwardOutput a(Moments{}), b(Moments{}), whole(Moments{});
  run(a, 0, 10);
  run(b, 10, 25);
  run(whole, 0, 25);
  a.merge(b);
  BOOST_TEST(a[2].samples() == 25);
  BOOST_TEST(torch::allclose(a[2].tensor("variance"), whole[2].tensor("variance"), 1e-10, 1e-12));
  ForwardOutput kept, more;
  run(kept, 0, 2);
  run(more, 2, 5);
  kept.merge(more);
  BOOST_TEST(kept[0].tensors().size() == 5u);
  BOOST_TEST(kept[0].tensors().at(4).equal(more[0].tensors().at(2)));
  BOOST_CHECK_THROW(kept.merge(a), c10::Error);
  ForwardPre other;
  other.modules(*model);
  BOOST_CHECK_EXCEPTION(kept.merge(other), c10::ValueError, says({"ForwardPre", "ForwardOutput"}));
  BOOST_TEST(kept[0].tensors().size() == 5u);
}

BOOST_AUTO_TEST_CASE(a_snapshot_resumes_where_it_stopped) {
  auto model = mlp();
  const auto feed = [&](int from, int to) {
    for (int i = from; i < to; ++i) model->forward(torch::cos(torch::arange(6).reshape({1, 6}) * i));
  };
  ForwardOutput whole(Moments{}), first(Moments{}), second(Moments{});
  ForwardPre kept, kept_on;
  whole.modules(*model);
  first.modules(*model);
  kept.modules(*model, sel::names("2"));
  feed(0, 7);
  Folder folder;
  first.snapshot(folder / "state");
  std::stringstream stream;
  kept.snapshot(stream);
  first.detach();
  second.modules(*model);
  second.restore(folder / "state");
  kept_on.modules(*model, sel::names("2"));
  kept_on.restore(stream);
  feed(7, 12);
  for (auto& subrecorder : whole) {
    for (const auto& [name, tensor] : subrecorder.results()) {
      BOOST_TEST(
          torch::allclose(second.at(subrecorder.name()).tensor(name), tensor, 0, 0, /*equal_nan=*/true));
    }
  }
  BOOST_TEST(second[0].samples() == 12);
  BOOST_TEST(kept_on[0].tensors().size() == 12u);
  BOOST_TEST(kept_on[0].tensors().at(3).equal(kept[0].tensors().at(3)));

  // Damage anywhere is an error, and nothing changes.
  std::ifstream file(folder / "state", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto mean = second[1].tensor("mean");
  for (std::size_t i = 0; i < bytes.size(); i += 37) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    std::istringstream in(damaged), cut(bytes.substr(0, i));
    BOOST_CHECK_THROW(second.restore(in), c10::Error);
    BOOST_CHECK_THROW(second.restore(cut), c10::Error);
  }
  BOOST_TEST(second[1].tensor("mean").equal(mean));
  ForwardOutput sums(Sum{});
  sums.modules(*model);
  BOOST_CHECK_EXCEPTION(sums.restore(folder / "state"), c10::ValueError, says({"Moments", "Sum"}));
}

// The checksum is right: somebody made the file, or memory failed before it was computed.
BOOST_AUTO_TEST_CASE(a_snapshot_that_claims_more_than_it_holds_is_an_error) {
  auto model = mlp();
  ForwardOutput kept, slots(torchtap::recorders::RecorderOptions().all_tensors(true));
  for (ForwardOutput* recorder : {&kept, &slots}) recorder->modules(*model, sel::names("2"));
  for (int i = 0; i < 3; ++i) model->forward(torch::rand({4, 6}));
  std::int64_t refused = 0;
  for (ForwardOutput* recorder : {&kept, &slots}) {
    std::stringstream stream;
    recorder->snapshot(stream);
    const std::string bytes = stream.str();
    constexpr std::size_t kHeader = 28, kSum = 20;
    for (std::size_t at = kHeader; at + 8 <= bytes.size(); ++at) {
      for (const char high : {'\0', '\x7f'}) {
        std::string damaged = bytes;
        damaged[at + 4] = high == 0 ? '\x40' : '\0';  // beyond memory, or beyond what a vector can have
        damaged[at + 7] = high;
        std::uint64_t sum = 14695981039346656037ULL;
        for (std::size_t i = kHeader; i < damaged.size(); ++i) {
          sum = (sum ^ static_cast<unsigned char>(damaged[i])) * 1099511628211ULL;
        }
        for (std::size_t i = 0; i < 8; ++i) damaged[kSum + i] = static_cast<char>(sum >> (8 * i) & 0xFF);
        std::istringstream in(damaged);
        try {
          recorder->restore(in);
        } catch (const c10::Error&) {
          ++refused;
        }
      }
    }
  }
  BOOST_TEST(refused > 100);
}

BOOST_AUTO_TEST_CASE(forward_stops_after_the_last_module_of_interest) {
  auto model = mlp();
  ForwardOutput early, late;
  early.modules(*model, sel::names("0", "1"));
  late.modules(*model, sel::names("4"));
  bool finished = false;
  const auto run = [&] {
    model->forward(torch::ones({1, 6}));
    finished = true;
  };
  BOOST_TEST(early.until_recorded(run));
  BOOST_TEST(!finished);
  BOOST_TEST(early.at("1").samples() == 1);
  BOOST_TEST(late[0].samples() == 0);
  BOOST_TEST(early.until_recorded(run));
  model->forward(torch::ones({1, 6}));
  BOOST_TEST(late[0].samples() == 1);
  ForwardOutput never(RecorderOptions().condition([] { return false; }));
  never.modules(*model, sel::names("0"));
  BOOST_TEST(!never.until_recorded(run));
  BOOST_TEST(finished);
  BOOST_CHECK_THROW(early.until_recorded([] { throw std::runtime_error("own"); }), std::runtime_error);
  BackwardOutput gradients;
  gradients.modules(*model);
  BOOST_CHECK_THROW(gradients.until_recorded(run), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(modes_of_the_model_do_not_reach_the_recording) {
  auto model = mlp();
  ForwardOutput sums(Sum{}), kept;
  sums.modules(*model, sel::names("2"));
  kept.modules(*model, sel::names("2"));
  const auto x = torch::randn({1, 6});
  {
    const c10::InferenceMode inference;
    model->forward(x);
  }
  model->forward(x);  // would fail if the recorder kept an inference tensor
  {
    const torch::NoGradGuard no_grad;
    model->forward(x);
  }
  BOOST_TEST(sums[0].samples() == 3);
  BOOST_TEST(!kept[0].tensors().at(0).is_inference());
  BOOST_TEST(kept[0].tensors().at(0).equal(kept[0].tensors().at(2)));
  model->to(torch::kBFloat16);
  ForwardOutput half(Moments{});
  half.modules(*model, sel::names("2"));
  kept.detach();
  sums.detach();
  model->forward(x.to(torch::kBFloat16));
  BOOST_TEST(half[0].tensor("mean").scalar_type() == torch::kDouble);
}

BOOST_AUTO_TEST_CASE(many_small_samples_of_changing_shape_are_kept_exactly) {
  torch::nn::AnyModule any{torch::nn::Identity()};
  ForwardPre kept;
  kept.module(any, "in");
  std::vector<at::Tensor> expected;
  torch::manual_seed(0);
  for (int i = 0; i < 3000; ++i) {
    at::Tensor x;
    if (i % 1000 < 900) {
      x = torch::randn({3, 4});
    } else if (i % 3 == 0) {
      x = torch::randn({i % 7, 2}).t();
    } else if (i % 3 == 1) {
      x = torch::randint(0, 9, {}, torch::kLong);
    } else {
      x = torch::randn({40, 500});  // too large to be packed
    }
    expected.push_back(x.clone());
    any.forward(x);
    x.zero_();
  }
  const auto samples = kept[0].tensors();
  BOOST_REQUIRE(samples.size() == expected.size());
  bool same = true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    same = same && samples[i].equal(expected[i]) && samples[i].scalar_type() == expected[i].scalar_type();
  }
  BOOST_TEST(same);
  BOOST_TEST(kept[0].name() == "in");
}

BOOST_AUTO_TEST_SUITE_END()
