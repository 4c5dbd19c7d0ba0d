// Attaching, looking up, iterating over and replacing subrecorders.
#include <range/v3/algorithm/count_if.hpp>
#include <range/v3/range/concepts.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/transform.hpp>
#include <torch/torch.h>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(lookup)

using namespace torchtap_test;
using namespace torchtap::recorders;
using torchtap::reductions::Sum;
namespace selectors = torchtap::selectors;
namespace model = torchtap::model;
using Paths = std::vector<std::string>;

static_assert(ranges::forward_range<Recorder> && ranges::forward_range<const Recorder>);
static_assert(ranges::common_range<const ForwardOutput>);
static_assert(std::is_convertible_v<Recorder::iterator, Recorder::const_iterator>);
static_assert(!std::is_convertible_v<Recorder::const_iterator, Recorder::iterator>);
static_assert(std::is_same_v<decltype(*std::declval<const Recorder&>().begin()), const Subrecorder&>);
// A move would leave the recorder without a subrecorder; an assignment would give it one without a hook.
static_assert(std::is_copy_constructible_v<Subrecorder> && !std::is_copy_assignable_v<Subrecorder> &&
              !std::is_move_assignable_v<Subrecorder>);

namespace {

struct TailImpl : torch::nn::Module {
  TailImpl() {
    relu = register_module("0", torchtap::nn::ReLU());
    tanh = register_module("1", torchtap::nn::Tanh());
  }
  at::Tensor forward(const at::Tensor& x) { return tanh(relu(x)); }
  torchtap::nn::ReLU relu{nullptr};
  torchtap::nn::Tanh tanh{nullptr};
};
TORCH_MODULE(Tail);

torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Identity(), torch::nn::ReLU(), Tail());
}

Paths paths(const Recorder& recorder) {
  Paths all;
  for (const auto& subrecorder : recorder) all.push_back(subrecorder.path());
  return all;
}

/// Has no forward.
struct BothImpl : torch::nn::Module {
  BothImpl() { a = register_module("a", net()); }
  torch::nn::Sequential a{nullptr};
};
TORCH_MODULE(Both);

/// Calls a layer that nothing hooks.
struct ClosedImpl : torch::nn::Module {
  ClosedImpl() { inner = register_module("inner", torch::nn::ReLU()); }
  at::Tensor forward(const at::Tensor& x) { return inner(x); }
  torch::nn::ReLU inner{nullptr};
};
TORCH_MODULE(Closed);

}  // namespace

BOOST_AUTO_TEST_CASE(attach_takes_models_walks_and_modules) {
  const Paths all{"", "0", "1", "2", "2.0", "2.1"}, relus{"1", "2.0"};
  auto holder = net();
  torch::nn::Module& plain = *holder;
  const auto check = [](const Paths& expected, const auto& attach) {
    ForwardOutput outputs;
    attach(outputs);
    BOOST_TEST(paths(outputs) == expected, boost::test_tools::per_element());
  };
  const auto relu = selectors::types<torch::nn::ReLU>();
  check(all, [&](auto& outputs) { outputs.attach(holder); });
  check(all, [&](auto& outputs) { outputs.attach(*holder); });
  check(all, [&](auto& outputs) { outputs.attach(plain); });
  check(relus, [&](auto& outputs) { outputs.attach(holder, relu); });
  check(relus, [&](auto& outputs) { outputs.attach(*holder, relu); });
  check(relus, [&](auto& outputs) { outputs.attach(plain, relu); });
  check(relus, [&](auto& outputs) { outputs.modules(holder, relu); });
  check(relus, [&](auto& outputs) { outputs.attach(selectors::modules(holder), relu); });
  check({"0", "1", "2"}, [&](auto& outputs) { outputs.attach(selectors::children(holder)); });
  check({"1"}, [&](auto& outputs) { outputs.attach(selectors::children(holder), relu); });
  check({"1"}, [&](auto& outputs) { outputs.children(holder, relu); });
  check({"2.1"}, [&](auto& outputs) { outputs.attach({model::find(*holder, "2.1")}); });
  check({"2.1", "0"}, [&](auto& outputs) {
    outputs.attach({model::find(*holder, "2.1"), model::find(*holder, "0")});
  });
  check({"1", "2.0", "1", "2.0"}, [&](auto& outputs) { outputs.attach(holder, relu).attach(plain, relu); });
  Both both;  // the compiler knows that the root has no forward
  check({"a", "a.0", "a.1", "a.2", "a.2.0", "a.2.1"}, [&](auto& outputs) { outputs.attach(both); });
  ForwardOutput none;
  BOOST_CHECK_THROW(none.attach(holder, selectors::types<torch::nn::Linear>()), c10::ValueError);
  BOOST_TEST(none.empty());
}

#ifdef TORCHTAP_TEST_TORCHSCRIPT
BOOST_AUTO_TEST_CASE(attach_takes_torchscript_and_a_method) {
  torch::jit::Module script("script");
  script.define("def forward(self, x):\n    return x + 1\ndef twice(self, x):\n    return x * 2\n");
  ForwardOutput outputs(Sum{}), twice(Sum{});
  outputs.attach(script);
  twice.attach(script, {}, "twice");
  script.forward({torch::ones({1})});
  script.get_method("twice")({torch::full({1}, 4.0)});
  BOOST_TEST(outputs.at("").tensor().item<double>() == 2.0);
  BOOST_TEST(twice.at("").tensor().item<double>() == 8.0);
}
#endif

BOOST_AUTO_TEST_CASE(a_const_recorder_is_read) {
  auto holder = net();
  ForwardOutput outputs(Sum{});
  outputs.attach(holder, selectors::leaves());
  outputs.remove(1);
  holder->forward(torch::ones({2}));
  const ForwardOutput& read = outputs;
  BOOST_TEST(read.at("2.0").samples() == 1);
  BOOST_TEST(&read.at("2.0") == &outputs.at("2.0"));
  BOOST_TEST(read.at("2.0").name() == "2.0");
  BOOST_TEST(&read[2] == &read.at("2.0"));
  BOOST_CHECK_EXCEPTION(read.at("2.O"), c10::IndexError, says({"ForwardOutput::at", "\"2.0\""}));
  BOOST_TEST(std::distance(read.begin(), read.end()) == 3);
  BOOST_TEST((read.cbegin() == read.begin() && read.cend() == read.end()));
  Recorder::const_iterator first = outputs.begin();
  BOOST_TEST(first->path() == "0");
  BOOST_TEST((first++)->path() == "0");
  BOOST_TEST(first->path() == "2.0");
  BOOST_TEST((Recorder::const_iterator() == Recorder::const_iterator()));
}

BOOST_AUTO_TEST_CASE(recorders_are_ranges) {
  auto holder = net();
  ForwardOutput outputs(Sum{});
  outputs.attach(holder);
  const auto is_relu = [](const Subrecorder& subrecorder) { return subrecorder.type() == "ReLU"; };
  const auto path = [](const Subrecorder& subrecorder) { return subrecorder.path(); };
  const Paths relus{"1", "2.0"};
  BOOST_TEST((outputs | ranges::views::filter(is_relu) | ranges::views::transform(path) |
              ranges::to<std::vector>()) == relus,
             boost::test_tools::per_element());
  BOOST_TEST((std::as_const(outputs) | ranges::views::filter(is_relu) | ranges::views::transform(path) |
              ranges::to<std::vector>()) == relus,
             boost::test_tools::per_element());
  BOOST_TEST(ranges::count_if(outputs, is_relu) == 2);
  holder->forward(torch::ones({1}));
  for (auto& subrecorder : outputs | ranges::views::filter(is_relu)) subrecorder.reset();
  BOOST_TEST(outputs.samples() == outputs.size() - 2);
}

BOOST_AUTO_TEST_CASE(a_copy_of_a_subrecorder_is_the_same_data_and_outlives_the_recorder) {
  auto holder = net();
  auto outputs = std::make_unique<ForwardOutput>(Sum{});
  outputs->attach(holder, selectors::names("0"));
  Subrecorder copy = std::move((*outputs)[0]);  // copies, and takes nothing away
  holder->forward(torch::ones({1}));
  BOOST_TEST((*outputs)[0].samples() == 1);
  outputs = nullptr;
  holder->forward(torch::ones({1}));
  BOOST_TEST(copy.samples() == 1);
  BOOST_TEST(copy.tensor().item<double>() == 1.0);
}

BOOST_AUTO_TEST_CASE(recorders_are_made_by_the_name_of_their_kind) {
  for (const std::string name :
       {"ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput", "BackwardOutput"}) {
    const auto recorder = make(name, RecorderOptions().reduction(Sum{}));
    BOOST_TEST(recorder->kind() == name);
    BOOST_TEST(recorder->options().reduction()->describe() == "Sum");
  }
  BOOST_TEST(dynamic_cast<BackwardInput*>(make("BackwardInput").get()) != nullptr);
  BOOST_CHECK_EXCEPTION(make("Output"), c10::ValueError, says({"\"Output\"", "\"ForwardOutput\""}));
}

BOOST_AUTO_TEST_CASE(replace_attaches_another_module) {
  auto first = net(), second = net();
  ForwardOutput outputs(Sum{});
  outputs.attach(first, selectors::names("1"));
  first->forward(torch::ones({2}));
  BOOST_TEST(&outputs.replace(0, model::find(*second, "0")) == &outputs);
  first->forward(torch::ones({2}));  // not recorded any more
  BOOST_TEST(outputs[0].samples() == 1);
  second->forward(torch::full({2}, -3.0));  // an Identity where a ReLU was
  BOOST_TEST(outputs.size() == 1);
  BOOST_TEST(outputs[0].samples() == 2);
  BOOST_TEST(outputs[0].path() == "1");
  BOOST_TEST(outputs[0].type() == "ReLU");
  BOOST_TEST(outputs[0].tensor().equal(torch::full({2}, -2.0)));

  const auto there = model::find(*second, "1");
  for (const std::int64_t index : {-1, 1}) {
    BOOST_CHECK_THROW(outputs.replace(index, there), c10::IndexError);
  }
  Closed closed;
  BOOST_CHECK_THROW(outputs.replace(0, model::find(*closed, "inner")), c10::ValueError);
  second->forward(torch::ones({2}));  // still recorded
  BOOST_TEST(outputs[0].samples() == 3);
  outputs.detach();
  second->forward(torch::ones({2}));
  BOOST_TEST(outputs[0].samples() == 3);
  outputs.remove(0);
  BOOST_CHECK_THROW(outputs.replace(0, there), c10::IndexError);
}

BOOST_AUTO_TEST_CASE(gradients_of_a_module_that_was_replaced_still_arrive) {
  auto first = net(), second = net();
  BackwardOutput gradients(Sum{});
  gradients.attach(first, selectors::names("0"));
  const auto run = [](torch::nn::Sequential& model) {
    return model->forward(torch::ones({2}).requires_grad_() * 1).sum();  // no leaf, which is left out
  };
  const at::Tensor before = run(first);
  gradients.replace(0, model::find(*second, "0"));
  before.backward();
  BOOST_TEST(gradients[0].samples() == 1);
  run(second).backward();
  BOOST_TEST(gradients[0].samples() == 2);
  const at::Tensor last = run(second);
  std::vector<torch::nn::Sequential> more;
  for (int i = 0; i < 70; ++i) {
    more.push_back(net());
    gradients.replace(0, model::find(*more.back(), "0"));
  }
  last.backward();  // its module was replaced more than 64 replacements ago
  BOOST_TEST(gradients[0].samples() == 2);
  run(more.back()).backward();
  BOOST_TEST(gradients[0].samples() == 3);
}

BOOST_AUTO_TEST_SUITE_END()
