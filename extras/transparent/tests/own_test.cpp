// User-defined modules, and combinations of the ways of hooking.
#include "own.hpp"

#include <boost/test/unit_test.hpp>

#include <map>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "tests/hooks/support.hpp"

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Handle;
using hooks::Kind;
using support::contains;
using support::message_of;

namespace {

/// The number of times each module fires in one forward.
template <class Run>
std::map<std::string, int> count(torch::nn::Module& root, Run&& run) {
  std::map<std::string, int> fired;
  std::vector<Handle> handles;
  for (const auto& module : torchtap::model::walk_modules(root)) {
    if (!module.has_forward() || !module.reachable()) continue;
    fired[module.path()] = 0;
    handles.push_back(
        hooks::attach(module, Kind::forward_output, [&fired](Event& event) { ++fired[event.path()]; }));
  }
  run();
  return fired;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(own)

BOOST_AUTO_TEST_CASE(every_call_fires_once_however_it_is_made) {
  at::manual_seed(0);
  auto net = std::make_shared<Net>();
  const auto x = at::randn({3, 4});
  at::Tensor hooked;
  net->eval();
  const auto bare = net->forward(x);
  const auto fired = count(*net, [&] { hooked = net->forward(x); });
  BOOST_TEST(support::identical(hooked, bare));
  const std::map<std::string, int> want{
      {"blocks.0", 1}, {"blocks.0.fc", 1}, {"blocks.1", 1},  {"blocks.1.fc", 1}, {"blocks.2.fc", 1},
      {"gate", 2},     {"gate.gate", 2},   {"scaled", 1},    {"renamed", 1},     {"norm", 1},
      {"tail", 1},     {"tail.0", 1},      {"tail.0.fc", 1}, {"tail.1", 1},      {"tail.2", 1}};
  for (const auto& [path, times] : want) {
    BOOST_TEST(fired.count(path) == 1, path << " cannot be reached");
    if (fired.count(path) == 1) BOOST_TEST(fired.at(path) == times, path << ": " << fired.at(path));
  }
  BOOST_TEST(fired.size() == want.size());
}

BOOST_AUTO_TEST_CASE(types_and_values_are_what_they_were) {
  Block block(4, 7.0);
  BOOST_TEST(block->name() == "(anonymous namespace)::BlockImpl");
  BOOST_TEST(block->scale == 7.0);
  static_assert(std::is_same_v<Block::Impl, BlockImpl> && std::is_same_v<Block::ContainedType, BlockImpl>);
  static_assert(std::is_same_v<decltype(block.ptr()), const std::shared_ptr<BlockImpl>&>);
  torch::nn::ModuleHolder<BlockImpl>& base = block;
  BOOST_TEST(base.get() == block.get());
  BOOST_TEST(torchtap::model::find(*block, "").type() == "Block");
  const Block other = block;
  BOOST_TEST(other.ptr() == block.ptr());
  Block empty = nullptr, moved = std::move(block);
  BOOST_TEST(empty.is_empty());
  torch::nn::Sequential entries{moved};
  BOOST_TEST(&entries->at<BlockImpl>(0) == other.get());
  torch::nn::AnyModule any(moved);
  BOOST_TEST(any.get<Block>().ptr() == other.ptr());
  const torch::nn::Module& module = *moved;
  BOOST_TEST((module.as<Block>()) == other.get());
  BOOST_TEST((module.as<torch::nn::Linear>()) == nullptr);
  static_assert(std::is_same_v<torch::nn::Linear::Impl, torch::nn::LinearImpl>);
  static_assert(std::is_base_of_v<torch::nn::ModuleHolder<torch::nn::LinearImpl>, torch::nn::Linear>);
}

BOOST_AUTO_TEST_CASE(defaults_and_several_results) {
  Gate gate(4);
  std::vector<std::int64_t> inputs, outputs;
  const auto handle = hooks::attach(*gate, Kind::forward, [&](Event& event) {
    inputs.push_back(event.inputs().size());
    outputs.push_back(event.outputs().size());
  });
  const auto x = at::ones({1, 4});
  gate(x);
  gate->forward(x, x);
  gate(x, x, true);
  BOOST_TEST(inputs == (std::vector<std::int64_t>{2, 2, 2}));
  BOOST_TEST(outputs == (std::vector<std::int64_t>{2, 2, 2}));
}

// A forward of LibTorch's is the whole call of a derived type if a holder of LibTorch's type calls it, and
// else a part of one.
BOOST_AUTO_TEST_CASE(derived_types_are_seen_through_holders_of_libtorchs_type) {
  const auto x = at::ones({1, 4});
  const auto check = [&](auto module) {
    torch::nn::Linear base(std::static_pointer_cast<torch::nn::LinearImpl>(module.ptr()));
    torch::nn::Sequential entries(module);
    torchtap::recorders::ForwardOutput outputs;
    outputs.modules(*entries, torchtap::selectors::names("0"));
    const std::vector<at::Tensor> want{base(x), module(x), entries->forward(x), base->forward(x)};
    BOOST_TEST(outputs.at("0").samples() == 4);
    for (std::size_t i = 0; i < want.size(); ++i) {
      BOOST_TEST(at::equal(outputs.at("0").tensors().at(i), want[i]));
    }
  };
  check(Renamed());
  check(Scaled());
}

BOOST_AUTO_TEST_CASE(clones_can_be_hooked_and_are_not) {
  Gate gate(4);
  int fired = 0;
  const auto handle = hooks::attach(*gate, Kind::forward_output, [&](Event&) { ++fired; });
  Gate copy(std::dynamic_pointer_cast<GateImpl>(gate->clone()));
  copy(at::ones({1, 4}));
  BOOST_TEST(fired == 0);
  const auto second = hooks::attach(*copy, Kind::forward_output, [&](Event&) { fired += 10; });
  copy(at::ones({1, 4}));
  gate(at::ones({1, 4}));
  BOOST_TEST(fired == 11);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_reached_says_why) {
  const auto attach = [](torch::nn::Module& module) {
    return message_of<c10::ValueError>(
        [&] { hooks::attach(module, Kind::forward_output, [](Event&) {}).remove(); });
  };
  const auto net = std::make_shared<Net>();
  BOOST_TEST(contains(attach(*net), "with TORCH_MODULE"), attach(*net));
  const Block adopted(std::make_shared<BlockImpl>());
  BOOST_TEST(contains(attach(*adopted.ptr()), "std::make_shared"), attach(*adopted.ptr()));
  torch::nn::LinearImpl on_stack(2, 2);
  BOOST_TEST(contains(attach(on_stack), "std::shared_ptr"), attach(on_stack));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_seen_works_as_before) {
  const auto x = at::ones({1, 4});
  BOOST_TEST(at::equal(TwoWays()->forward(x), x + 1));
  BOOST_TEST(at::equal(TwoWays()->forward(x, x), x + x));
  BOOST_TEST(at::equal(Sealed()(x), x + 2));
  BOOST_TEST(Config()->depth == 3);
  Node node;
  node->next = Node();
  BOOST_TEST(at::equal(node->forward(x), x + 1));
  Block adopted(std::make_shared<BlockImpl>(4, 3.0));
  adopted->eval();
  BOOST_TEST(at::equal(adopted(x), adopted.ptr()->forward(x)));
}

BOOST_AUTO_TEST_CASE(modules_inside_of_libtorch) {
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8).dropout(0));
  torchtap::recorders::ForwardOutput outputs;
  outputs.modules(*layer, torchtap::selectors::types<torch::nn::Linear, torch::nn::LayerNorm>() &&
                              !torchtap::selectors::names("self_attn*"));
  const auto x = at::randn({3, 2, 4});
  layer(x);
  BOOST_TEST(outputs.size() == 4);
  const auto inner = torch::nn::functional::linear(outputs.at("norm1").tensors().at(0),
                                                   layer->linear1->weight, layer->linear1->bias);
  BOOST_TEST(at::equal(outputs.at("linear1").tensors().at(0), inner));
}

BOOST_AUTO_TEST_CASE(a_new_module_at_an_old_address_is_another_one) {
  int fired = 0;
  std::vector<Handle> handles;
  const void* address = nullptr;
  bool reused = false;
  for (int i = 0; i < 200 && !reused; ++i) {
    std::shared_ptr<torch::nn::ReLUImpl> relu(new torch::nn::ReLUImpl);
    reused = relu.get() == address;
    (*relu).forward(at::ones({1}));
    BOOST_TEST(fired == 0);
    address = relu.get();
    auto handle = hooks::attach(*relu, Kind::forward_output, [&](Event&) { ++fired; });
    BOOST_TEST(handle.attached());
    relu->forward(at::ones({1}));
    BOOST_TEST(fired == 1);
    fired = 0;
    relu.reset();
    BOOST_TEST(!handle.attached());
    handles.push_back(std::move(handle));
  }
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory from being used again
  BOOST_TEST(reused, "the allocator never gave an address again: nothing was tested");
#endif
}

BOOST_AUTO_TEST_CASE(threads_call_while_others_attach_and_detach) {
  at::set_num_threads(1);
  torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  net->eval();
  const auto x = at::ones({2, 4});
  const auto want = net->forward(x);
  std::atomic<int> kept{0}, others{0}, wrong{0};
  const auto all = torchtap::model::walk_modules(*net);
  const auto handle = hooks::attach(torchtap::model::find(*net, "blocks.0.fc"), Kind::forward_output,
                                    [&](Event&) { ++kept; });
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    while (!stop) {
      std::vector<Handle> temporary;
      for (const auto& module : all) {
        if (!module.has_forward() || !module.reachable()) continue;
        temporary.push_back(hooks::attach(module, Kind::forward, [&](Event&) { ++others; }));
      }
    }
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      torch::NoGradGuard no_grad_here;
      for (int j = 0; j < 100; ++j) {
        if (!at::equal(net->forward(x), want)) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  stop = true;
  changer.join();
  BOOST_TEST(kept == 400);
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_SUITE_END()
