// Hooks on all modules of a program, which it makes before and after.
#include <boost/test/unit_test.hpp>

#include <map>
#include <thread>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/transparent/transparent.hpp>

#include "own.hpp"
#include "tests/hooks/support.hpp"

BOOST_AUTO_TEST_SUITE(every_module)

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Kind;
using support::contains;
using support::message_of;
using torchtap::transparent::EveryModule;

namespace {

using Counts = std::map<std::string, int>;

}  // namespace

BOOST_AUTO_TEST_CASE(modules_that_exist_and_modules_that_are_made_later) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({3, 4});
  const auto net = std::make_shared<Net>();
  net->eval();
  const at::Tensor bare = net->forward(x);
  Counts counts;
  std::map<const torch::nn::Module*, std::string> types;
  {
    EveryModule hook(Kind::forward, [&](torch::nn::Module& module, Event& event) {
      ++counts[event.type()];
      types[&module] = event.type();
      BOOST_TEST(event.path() == "");
      BOOST_TEST(event.outputs().size() >= 1);
    });
    BOOST_TEST(support::identical(net->forward(x), bare));
    // As often as hooks that are attached to each of these modules; see own_test.cpp.
    BOOST_TEST(counts["Gate"] == 2);
    BOOST_TEST(counts["Scaled"] == 1);
    BOOST_TEST(counts["Renamed"] == 1);
    BOOST_TEST(counts["BatchNorm1d"] == 2);
    BOOST_TEST(types.at(net->gate.get()) == "Gate");
    const int linears = counts["Linear"];
    torch::nn::Linear later(4, 2);
    later(x);
    BOOST_TEST(counts["Linear"] == linears + 1);
    BOOST_TEST(types.at(later.get()) == "Linear");
    for (int i = 0; i < 500; ++i) torch::nn::Linear(4, 2)(x);
    BOOST_TEST(counts["Linear"] == linears + 501);
  }
  const Counts before = counts;
  net->forward(x);
  torch::nn::Linear(4, 2)(x);
  BOOST_TEST(counts == before);
}

BOOST_AUTO_TEST_CASE(the_first_call_of_an_entry_that_has_hooks_of_its_own) {
  const at::Tensor x = at::ones({3, 4});
  torch::nn::Sequential model(Block(4, 2.0), torch::nn::Identity());
  int own = 0;
  const auto handle = hooks::attach(*model, "0", Kind::forward_output, [&](Event& /*event*/) { ++own; });
  Counts counts;
  const EveryModule hook(Kind::forward_output,
                         [&](torch::nn::Module& /*module*/, Event& event) { ++counts[event.type()]; });
  for (int i = 0; i < 4; ++i) model->forward(x);
  BOOST_TEST(own == 4);
  BOOST_TEST(counts["Block"] == 4);
}

BOOST_AUTO_TEST_CASE(it_runs_before_the_modules_own_hooks_and_several_stack) {
  const at::Tensor x = at::ones({1, 4});
  torch::nn::Linear module(4, 2);
  std::string order;
  const auto add = [&](char name) {
    return [&order, name](torch::nn::Module& /*module*/, Event& /*event*/) { order += name; };
  };
  const auto own = hooks::attach(*module, Kind::forward_output, [&](Event&) { order += 'o'; });
  const EveryModule first(Kind::forward_output, add('a'));
  {
    const EveryModule second(Kind::forward_pre, add('b'));
    module(x);
    BOOST_TEST(order == "bao");
  }
  module(x);
  BOOST_TEST(order == "baoao");
}

BOOST_AUTO_TEST_CASE(outputs_can_be_replaced_and_gradients_seen) {
  const at::Tensor x = at::ones({1, 4}).requires_grad_();
  std::vector<std::string> seen;
  const EveryModule doubled(Kind::forward_output, [](torch::nn::Module& /*module*/, Event& event) {
    event.outputs()[0] = event.outputs()[0] * 2;
  });
  const EveryModule gradients(Kind::backward_output, [&](torch::nn::Module& /*module*/, Event& event) {
    seen.push_back(event.type());
  });
  Block block;
  at::Tensor y = block(x);
  y.sum().backward();
  BOOST_TEST(seen == (std::vector<std::string>{"Block", "Linear"}));
  // A gradient that comes when its module is gone is nobody's.
  {
    torch::nn::Linear gone(4, 2);
    y = gone(x);
  }
  y.sum().backward();
  BOOST_TEST(seen.size() == 2);
}

BOOST_AUTO_TEST_CASE(what_is_missed_is_told) {
  const EveryModule hook(Kind::forward_pre, [](torch::nn::Module& /*module*/, Event& /*event*/) {});
  BOOST_TEST(hook.missed().empty());
  torchtap::nn::Linear pointed(4, 4);
  pointed(at::ones({1, 4}));
  torch::nn::LinearImpl on_stack(4, 4);
  on_stack.forward(at::ones({1, 4}));
  std::string all;
  for (const auto& text : hook.missed()) all += text + "\n";
  BOOST_TEST(contains(all, "Linear: "));
  BOOST_TEST(
      contains(message_of<c10::ValueError>([] { const EveryModule hook(Kind::forward, nullptr); }), "empty"));
  BOOST_TEST(contains(message_of<c10::ValueError>([] {
                        const EveryModule hook(Kind::backward_parameter, [](torch::nn::Module&, Event&) {});
                      }),
                      "recorders::BackwardParameter"));
}

// Hooks of all modules begin and end while several threads call modules; those of another one miss nothing.
BOOST_AUTO_TEST_CASE(others_come_and_go_while_threads_call) {
  std::atomic<int> calls{0}, others{0}, running{4};
  torch::nn::Linear shared(4, 4);
  {
    const EveryModule hook(Kind::forward_output,
                           [&](torch::nn::Module& /*module*/, Event& /*event*/) { ++calls; });
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int step = 0; step < 100; ++step) {
          torch::nn::Linear fresh(4, 4);
          fresh(shared(at::ones({1, 4})));
        }
        --running;
      });
    }
    do {
      const EveryModule other(Kind::forward_pre,
                              [&](torch::nn::Module& /*module*/, Event& /*event*/) { ++others; });
      const int before = others;
      while (others == before && running != 0) std::this_thread::yield();
    } while (running != 0);
    for (auto& thread : threads) thread.join();
  }
  BOOST_TEST(calls == 800);
  const int before = others;
  shared(at::ones({1, 4}));
  BOOST_TEST(others == before);
}

BOOST_AUTO_TEST_SUITE_END()
