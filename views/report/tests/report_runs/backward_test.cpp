// The backward of modules, by the sequence numbers of autograd's nodes.
#include <torchtap/hooks/hooked.hpp>

#include "support.hpp"
#include "zoo/resnet.hpp"

BOOST_AUTO_TEST_SUITE(backward)

namespace {

using namespace support;
using report::Phase;
using report::Report;

report::ReportOptions times_only() {
  return report::ReportOptions().memory(false).work(false).non_finite(report::OnNonFinite::ignore);
}

/// Lets a clock pass when its gradient is computed.
struct SlowBackward : torch::autograd::Function<SlowBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            std::int64_t address) {
    context->saved_data["clock"] = address;
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto* clock = reinterpret_cast<const std::pair<FakeClock, std::int64_t>*>(  // NOLINT
        context->saved_data["clock"].toInt());
    clock->first.pass(clock->second);
    return {gradients[0] * 2, at::Tensor()};
  }
};

struct SlowImpl : nn::Module {
  std::pair<FakeClock, std::int64_t> time;
  std::shared_ptr<SlowImpl> inside;
  SlowImpl(const FakeClock& clock, std::int64_t backward) : time(clock, backward) {}
  at::Tensor forward(at::Tensor x);
};
using HookedSlow = torchtap::hooks::Hooked<SlowImpl>;
at::Tensor SlowImpl::forward(at::Tensor x) {
  x = SlowBackward::apply(x, reinterpret_cast<std::int64_t>(&time));  // NOLINT
  if (inside != nullptr) x = static_cast<HookedSlow&>(*inside).forward(x);
  return x;
}

BOOST_AUTO_TEST_CASE(times_are_exact_in_any_order_with_branches_and_two_calls) {
  const FakeClock clock;
  auto left = std::make_shared<HookedSlow>(clock, 100), right = std::make_shared<HookedSlow>(clock, 1000),
       deep = std::make_shared<HookedSlow>(clock, 7);
  left->inside = left->register_module("deep", deep);
  struct DiamondImpl : nn::Module {
    std::shared_ptr<HookedSlow> left, right;
    at::Tensor forward(const at::Tensor& x) {
      return right->forward(x) * left->forward(x) + left->forward(x);
    }
  };
  torchtap::hooks::Hooked<DiamondImpl> model;
  model.left = model.register_module("left", left);
  model.right = model.register_module("right", right);
  Report report(model, clock.options().memory(false));
  const auto x = torch::ones({3}).requires_grad_();
  const std::pair<FakeClock, std::int64_t> outside(clock, 50000);
  {
    auto recording = report.record();
    const auto loss =
        SlowBackward::apply(model.forward(x), reinterpret_cast<std::int64_t>(&outside));  // NOLINT
    clock.pass(123456);
    recording.phase(Phase::backward);
    loss.sum().backward();
  }
  const auto results = report.results();
  const auto check = [&](const std::string& path, std::int64_t inclusive, std::int64_t self) {
    const auto& backward = row(results, path).backward;
    BOOST_TEST(nanoseconds(backward.inclusive.median) == inclusive, path);
    BOOST_TEST(nanoseconds(backward.self.median) == self, path);
  };
  check("left.deep", 14, 14);
  check("left", 214, 200);
  check("right", 1000, 1000);
  check("", 1214, 0);
  BOOST_TEST(row(results, "left").backward.inclusive.calls == 2);
  BOOST_TEST(nanoseconds(results.outside_backward_seconds) == 50000);
  BOOST_TEST(x.grad().equal(torch::full({3}, 2.F * (2 + 4 + 4))));
}

BOOST_AUTO_TEST_CASE(a_resnets_backward_finds_its_modules, *where_modules_are_reached()) {
  zoo::ResNet18 net(zoo::ResNet18Options().num_classes(10).width(32));
  Report report(*net, times_only().work(true));
  double whole = 0;
  {
    auto recording = report.record();
    const auto loss = net(torch::rand({4, 3, 96, 96})).sum();
    recording.phase(Phase::backward);
    const auto began = std::chrono::steady_clock::now();
    loss.backward();
    whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  const auto results = report.results();
  double self = 0;
  for_each_row(results.root, [&](const report::ModuleRow& row) { self += row.backward.self.total; });
  BOOST_TEST(results.root.backward.inclusive.total <= whole);
  BOOST_TEST(self <= whole);
  // Nothing is lost: of each multiplication there are two, but for the image, which needs no gradient.
  BOOST_TEST(results.outside_backward.macs == 0);
  BOOST_TEST(results.root.backward.work.macs ==
             2 * results.root.forward.work.macs - row(results, "conv1").forward.work.macs);
  for (const char* path : {"conv1", "bn1", "layer1.0.conv2", "layer3.1.bn2", "layer4.0.downsample.0", "fc"}) {
    BOOST_TEST(row(results, path).backward.self.total > 0, path);
    BOOST_TEST(row(results, path).backward.self.calls == 1, path);
  }
}

BOOST_AUTO_TEST_CASE(torchscript_is_differentiated_module_by_module) {
  auto model = torch::jit::load(model_file("resnet18"));
  model.train();
  for (const auto& parameter : model.parameters()) parameter.requires_grad_();
  Report report(model, report::ReportOptions().memory(false).non_finite(report::OnNonFinite::ignore));
  for (int i = 0; i < 4; ++i) {  // the first are interpreted, then TorchScript optimises
    auto recording = report.record();
    const auto loss = model.forward({torch::rand({1, 3, 64, 64})}).toTensor().sum();
    recording.phase(Phase::backward);
    loss.backward();
    recording.stop();
    const auto results = report.results();
    // By hand: 64 filters of 3x7x7 at 32x32 places; the image needs no gradient. The head needs two.
    BOOST_TEST(row(results, "conv1").backward.work.macs == 64LL * 147 * 32 * 32);
    BOOST_TEST(row(results, "fc").backward.work.macs == 2 * 512 * 1000);
    BOOST_TEST(results.root.backward.work.macs == 2 * results.root.forward.work.macs - 64LL * 147 * 32 * 32);
    BOOST_TEST(results.outside_backward.macs == 0);
  }
}

BOOST_AUTO_TEST_CASE(gradients_have_shapes_and_parameters_norms) {
  nn::Sequential model(nn::Linear(4, 3), nn::ReLU(nn::ReLUOptions(true)), nn::Linear(3, 2));
  {
    const torch::NoGradGuard no_grad;
    model[0]->as<nn::Linear>()->bias.fill_(3);  // so that all pass the ReLU
  }
  const auto x = torch::rand({5, 4});
  Report report(*model);
  {
    auto recording = report.record();
    const auto loss = model->forward(x).square().sum();
    recording.phase(Phase::backward);
    loss.backward();
  }
  const auto results = report.results();
  const auto& last = row(results, "2");
  BOOST_REQUIRE(last.input_gradients.size() == 1U);
  BOOST_TEST(last.input_gradients[0].shape == (std::vector<std::int64_t>{5, 3}),
             boost::test_tools::per_element());
  BOOST_REQUIRE(last.output_gradients.size() == 1U);
  BOOST_TEST(last.output_gradients[0].shape == (std::vector<std::int64_t>{5, 2}),
             boost::test_tools::per_element());
  BOOST_TEST(row(results, "0").input_gradients.empty());  // the input needs none
  BOOST_TEST(row(results, "0").output_gradients.size() == 1U);
  const auto linear = model[0]->as<nn::Linear>();
  const double norm = std::sqrt(linear->weight.grad().square().sum().item<double>() +
                                linear->bias.grad().square().sum().item<double>());
  BOOST_TEST(std::abs(*row(results, "0").gradient_norm - norm) < 1e-4 * norm);
  BOOST_TEST(!row(results, "1").gradient_norm);
  BOOST_TEST(last.gradient_ratio.value() > 0);
  BOOST_TEST(!row(results, "0").gradient_ratio);
  BOOST_TEST(linear->weight.grad_fn() == nullptr);
}

BOOST_AUTO_TEST_CASE(exploding_vanishing_dead_and_never_run) {
  nn::Sequential model(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4), nn::Linear(4, 4));
  {
    const torch::NoGradGuard no_grad;
    model[0]->as<nn::Linear>()->bias.fill_(-100);  // nothing passes the ReLU
    model[3]->as<nn::Linear>()->weight.fill_(1e-7);
  }
  nn::Module whole("Whole");
  whole.register_module("model", model.ptr());
  whole.register_module("unused", nn::Sequential(nn::ReLU()).ptr());
  Report report(whole);
  {
    auto recording = report.record();
    const auto loss = model->forward(torch::rand({8, 4})).sum();
    recording.phase(Phase::backward);
    loss.backward();
  }
  const auto results = report.results();
  const auto marked = [&](const std::string& path, const char* mark) {
    const auto& marks = row(results, path).marks;
    return std::find(marks.begin(), marks.end(), mark) != marks.end();
  };
  BOOST_TEST(row(results, "model.1").zero_fraction.value() == 1);
  BOOST_TEST(marked("model.1", "dead_relu"));
  BOOST_TEST(marked("model.1", "all_zero"));
  BOOST_TEST(!marked("model.0", "dead_relu"));
  BOOST_TEST(marked("model.0", "vanishing_gradient"));
  BOOST_TEST(marked("model.3", "exploding_gradient"));  // beside the tiny gradient of model.2
  BOOST_TEST(!marked("model.2", "exploding_gradient"));
  BOOST_TEST(marked("unused.0", "never_ran"));
  BOOST_TEST(!marked("model", "never_ran"));
  const auto& relu = row(results, "model.1");
  BOOST_REQUIRE(relu.mark_sentences.size() == relu.marks.size());
  const auto at = std::find(relu.marks.begin(), relu.marks.end(), "dead_relu") - relu.marks.begin();
  BOOST_TEST(relu.mark_sentences[static_cast<std::size_t>(at)] == "output: 100 % of 32 values are zero");
}

/// Registered in the other order than they run.
struct Backwards : nn::Module {
  nn::Linear second{register_module("second", nn::Linear(4, 4))};
  nn::Linear first{register_module("first", nn::Linear(4, 4))};

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = first->forward(x), small = h * 1e-4;  // h, with a small gradient
    return second->forward(h.detach() + (small - small.detach()));
  }
};

BOOST_AUTO_TEST_CASE(the_module_before_is_the_one_that_ran_before) {
  Backwards model;
  const auto measured = [&](const report::ReportOptions& options) {
    Report report(model, options);
    {
      auto recording = report.record();
      const auto loss = model.forward(torch::rand({8, 4})).sum();
      recording.phase(Phase::backward);
      loss.backward();
    }
    return report.results();
  };
  const auto results = measured({});
  BOOST_TEST(!row(results, "first").gradient_ratio.has_value());
  BOOST_TEST(*row(results, "second").gradient_ratio > 1e3);
  BOOST_TEST((row(results, "second").marks == std::vector<std::string>{"exploding_gradient"}));
  BOOST_TEST(row(results, "first").marks.empty());
  // Rules of the program's own, and other thresholds.
  const auto judged = measured(report::ReportOptions().rules(
      torchtap::rules::Rules()
          .set("exploding_gradient", "ratio", 1e9)
          .add("narrow", [](const torchtap::rules::Facts& facts) -> std::optional<std::string> {
            if (facts.tensor != torchtap::rules::Tensor::output || facts.count > 32) return std::nullopt;
            return "few values";
          })));
  BOOST_TEST((row(judged, "second").marks == std::vector<std::string>{"narrow"}));
  BOOST_TEST((row(judged, "second").mark_sentences == std::vector<std::string>{"output: few values"}));
}

// Rules are asked outside of the lock.
BOOST_AUTO_TEST_CASE(a_rule_of_the_program_may_read_the_report, *boost::unit_test::timeout(120)) {
  nn::Sequential model(nn::Linear(4, 4));
  std::unique_ptr<Report> report;
  bool asks = true;
  std::size_t seen = 0;
  report = std::make_unique<Report>(
      *model, report::ReportOptions().rules(torchtap::rules::Rules().add(
                  "own", [&](const torchtap::rules::Facts&) -> std::optional<std::string> {
                    if (std::exchange(asks, false)) seen = report->results().root.children.size();
                    return std::nullopt;
                  })));
  {
    auto recording = report->record();
    model->forward(torch::rand({2, 4}));
  }
  report->results();
  BOOST_TEST(seen == 1);
}

BOOST_AUTO_TEST_CASE(gradients_are_measured_before_the_program_clears_them) {
  torch::manual_seed(16);  // the last bias has two numbers that are nearly equal, which is no outlier
  nn::Sequential model(nn::Linear(4, 4), nn::Linear(4, 2));
  Report report(*model);
  auto recording = report.record();
  const auto loss = model->forward(torch::rand({8, 4})).square().sum();
  recording.phase(Phase::backward);
  loss.backward();
  recording.phase(Phase::other);
  const double norm = std::hypot(model[0]->as<nn::Linear>()->weight.grad().norm().item<double>(),
                                 model[0]->as<nn::Linear>()->bias.grad().norm().item<double>());
  for (const auto& parameter : model->parameters()) parameter.mutable_grad().zero_();
  recording.phase(Phase::backward);
  torch::rand({2}).requires_grad_().sum().backward();  // of something else
  recording.stop();
  const auto results = report.results();
  BOOST_TEST(std::abs(*row(results, "0").gradient_norm - norm) < 1e-4 * norm);
  BOOST_TEST(row(results, "0").marks.empty());
  BOOST_TEST(row(results, "1").marks.empty());
}

BOOST_AUTO_TEST_CASE(a_list_is_the_sum_of_its_entries) {
  struct ListedImpl : nn::Module {
    nn::ModuleList list{register_module("list", nn::ModuleList())};
    torchtap::hooks::Hooked<nn::LinearImpl>* entries[2] = {};
    ListedImpl() {
      for (auto*& entry : entries) {
        const auto made = std::make_shared<torchtap::hooks::Hooked<nn::LinearImpl>>(nn::LinearOptions(4, 4));
        list->push_back(made);
        entry = made.get();
      }
    }
    at::Tensor forward(const at::Tensor& x) { return entries[1]->forward(entries[0]->forward(x)); }
  };
  torchtap::hooks::Hooked<ListedImpl> model;
  Report report(model);
  {
    auto recording = report.record();
    const auto loss = model.forward(torch::rand({3, 4})).sum();
    recording.phase(Phase::backward);
    loss.backward();
  }
  const auto results = report.results();
  const auto &list = row(results, "list").backward, &first = row(results, "list.0").backward,
             &second = row(results, "list.1").backward;
  BOOST_TEST(first.work.macs == 3 * 4 * 4);  // the input needs no gradient
  BOOST_TEST(list.work.macs == 3 * 3 * 4 * 4);
  BOOST_TEST(results.root.backward.work.macs == list.work.macs);
  BOOST_TEST(std::abs(list.inclusive.median - first.inclusive.median - second.inclusive.median) < 2e-9);
  BOOST_TEST(list.memory.allocations == first.memory.allocations + second.memory.allocations);
}

BOOST_AUTO_TEST_CASE(nothing_is_left_on_parameters) {
  nn::Sequential model(nn::Linear(4, 4));
  const auto weight = model[0]->as<nn::Linear>()->weight;
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  {
    Report report(*model);
    const auto recording = report.record();
    BOOST_TEST(accumulator->pre_hooks().size() == 1U);
    BOOST_CHECK_THROW(model->forward(torch::rand({2, 3})), c10::Error);
  }
  BOOST_TEST(accumulator->pre_hooks().empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
