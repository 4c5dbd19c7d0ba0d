// Packages that run in several threads, several loaders of one file, and the order in which things are
// destroyed.
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(threads)

namespace tap = torchtap;
using namespace torchtap_test;
using tap::exported::Model;
using tap::recorders::ForwardOutput;

BOOST_AUTO_TEST_CASE(tell_loaders_of_one_file_apart) {
  const Reference reference("mlp");
  Model a(file("mlp.pt2")), b(file("mlp.pt2"));
  ForwardOutput of_a, of_b;
  of_a.modules(a);
  of_b.modules(b, tap::selectors::names("b"));
  a.run(reference.inputs());
  BOOST_TEST(of_a.samples() == 6);
  BOOST_TEST(of_b.samples() == 0);
  b.run(reference.inputs());
  b.run(reference.inputs());
  BOOST_TEST(of_a.samples() == 6);
  BOOST_TEST(of_b.samples() == 2);
  BOOST_TEST((a.modules().vector()[1] != b.modules().vector()[1]));
}

BOOST_AUTO_TEST_CASE(record_each_call_once) {
  constexpr int kThreads = 4, kRuns = 100;
  const Reference reference("mlp");
  Model model(file("mlp.pt2"));
  const auto expected = model.run(reference.inputs());
  ForwardOutput sums(tap::reductions::Sum{});
  sums.modules(model);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int run = 0; run < kRuns; ++run)
        wrong += identical(model.run(reference.inputs()), expected) ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
  for (const auto& module : sums) {
    BOOST_TEST(module.samples() == kThreads * kRuns);
    BOOST_TEST(
        at::allclose(module.tensor(), reference.seen("out", module.path()) * (kThreads * kRuns), 1e-3, 1e-3));
  }
}

BOOST_AUTO_TEST_CASE(let_hooks_come_and_go_while_others_run) {
  const Reference reference("mlp");
  Model model(file("mlp.pt2"));
  const auto expected = model.run(reference.inputs());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<std::int64_t> runs{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        wrong += identical(model.run(reference.inputs()), expected) ? 0 : 1;
        ++runs;
      }
    });
  }
  std::int64_t recorded = 0;
  for (int round = 0; round < 200; ++round) {
    auto alive = std::make_shared<std::atomic<bool>>(true);
    ForwardOutput outputs;
    outputs.modules(model, tap::selectors::names(round % 2 == 0 ? "b" : "*"));
    auto handle = tap::hooks::attach(model.modules().vector()[1], tap::hooks::Kind::forward_output,
                                     [alive](tap::hooks::Event&) { BOOST_REQUIRE(alive != nullptr); });
    while (round % 4 == 0 && outputs.samples() == 0) std::this_thread::yield();
    recorded += outputs.samples();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
  BOOST_TEST(recorded >= 50);
  BOOST_TEST(runs >= 50);
  ForwardOutput last;
  last.modules(model);
  model.run(reference.inputs());
  BOOST_TEST(last.samples() == last.size());
}

BOOST_AUTO_TEST_CASE(let_the_model_go_first) {
  const Reference reference("mlp");
  auto model = std::make_unique<Model>(file("mlp.pt2"));
  ForwardOutput outputs;
  outputs.modules(*model);
  auto handle = tap::hooks::attach(model->modules().vector()[1], tap::hooks::Kind::forward_output,
                                   [](tap::hooks::Event&) {});
  const auto module = std::make_optional(model->modules().vector()[1]);
  model->run(reference.inputs());
  Model moved = std::move(*model);
  moved.run(reference.inputs());
  BOOST_TEST(outputs.samples() == 12);
  model.reset();
  { const Model gone = std::move(moved); }
  BOOST_TEST(module->path() == "a");
  BOOST_TEST(close(outputs.at("c").tensors()[0], reference.seen("out", "c")));
  outputs.detach();
  handle.remove();
  BOOST_TEST(!handle.attached());
}

BOOST_AUTO_TEST_SUITE_END()
