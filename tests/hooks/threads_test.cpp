// Hooks that fire in several threads while others attach and detach. Also for -DTORCHTAP_SANITIZE=thread.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>

BOOST_AUTO_TEST_SUITE(threads)

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Handle;
using hooks::Kind;

namespace {

constexpr int kThreads = 8;
constexpr int kCalls = 200;

struct BlockImpl : torch::nn::Module {
  BlockImpl() { fc = register_module("fc", torchtap::nn::Linear(2, 2)); }
  at::Tensor forward(const at::Tensor& x) { return fc(fc(x)); }
  torchtap::nn::Linear fc{nullptr};
};
TORCHTAP_MODULE(Block);

torch::nn::Sequential make_model() {
  torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::ReLU(), Block(), torch::nn::Linear(2, 2));
  model->eval();
  return model;
}

template <class Body>
void in_threads(int count, Body&& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body);
  for (auto& thread : threads) thread.join();
}

}  // namespace

BOOST_AUTO_TEST_CASE(counts_are_exact_while_others_attach_and_detach) {
  at::set_num_threads(1);
  auto model = make_model();
  std::map<std::string, std::atomic<int>> fired;
  std::atomic<int> wrong_index{0}, others{0};
  std::vector<Handle> handles;
  const auto modules = torchtap::model::walk_modules(*model);
  for (const auto& module : modules) {
    for (const auto kind : {Kind::forward_pre, Kind::forward}) {
      handles.push_back(hooks::attach(module, kind, [&fired, &wrong_index](Event& event) {
        ++fired.at(event.path());
        const bool twice = event.path() == "2.fc";
        if (event.call_index() < 0 || event.call_index() > (twice ? 1 : 0)) ++wrong_index;
      }));
    }
    fired[module.path()] = 0;
  }
  std::atomic<bool> attached{false}, stop{false};
  std::thread changer([&] {
    torch::NoGradGuard no_grad;
    while (!stop) {
      std::vector<Handle> temporary;
      for (const auto& module : modules) {
        auto state = std::make_shared<std::atomic<int>>(0);
        temporary.push_back(hooks::attach(
            module, Kind::forward, [state, &others](Event&) { ++*state, ++others; }, hooks::Place::first));
      }
      attached = true;
      while (others == 0) std::this_thread::yield();  // the first hooks stay until one was called
      std::this_thread::yield();
    }
  });
  while (!attached) std::this_thread::yield();
  in_threads(kThreads, [&] {
    torch::NoGradGuard no_grad;
    for (int i = 0; i < kCalls; ++i) model->forward(at::ones({2, 2}));
  });
  stop = true;
  changer.join();
  for (const auto& [path, count] : fired)
    BOOST_TEST(count == (path == "2.fc" ? 4 : 2) * kThreads * kCalls, path);
  BOOST_TEST(wrong_index == 0);
  const int before = others;
  BOOST_TEST(before > 0);
  model->forward(at::ones({2, 2}));
  BOOST_TEST(others == before);  // all of them are detached
}

// The last hook is removed and attached again while calls are running: the holders' tables are exchanged
// under them.
BOOST_AUTO_TEST_CASE(the_last_hook_comes_and_goes) {
  at::set_num_threads(1);
  auto model = make_model();
  const auto modules = torchtap::model::walk_modules(*model);
  const auto want = model->forward(at::ones({2, 2}));
  std::atomic<bool> attached{false}, stop{false};
  std::atomic<int> fired{0}, wrong{0};
  std::thread changer([&] {
    while (!stop) {
      std::vector<Handle> temporary;
      for (const auto& module : modules) {
        temporary.push_back(hooks::attach(module, Kind::forward, [&](Event&) { ++fired; }));
      }
      attached = true;
      while (fired == 0) std::this_thread::yield();  // the first hooks stay until one was called
      temporary.clear();
      std::this_thread::yield();
    }
  });
  while (!attached) std::this_thread::yield();
  in_threads(kThreads, [&] {
    torch::NoGradGuard no_grad;
    for (int i = 0; i < kCalls; ++i) {
      if (!at::equal(model->forward(at::ones({2, 2})), want)) ++wrong;
    }
  });
  stop = true;
  changer.join();
  BOOST_TEST(wrong == 0);
  const int after = fired;
  BOOST_TEST(after > 0);
  model->forward(at::ones({2, 2}));
  BOOST_TEST(fired == after);
}

BOOST_AUTO_TEST_CASE(gradients_in_several_threads) {
  at::set_num_threads(1);
  auto model = make_model();
  for (auto& parameter : model->parameters()) parameter.requires_grad_(false);
  std::atomic<int> fired{0};
  std::vector<Handle> handles;
  for (const auto& module : torchtap::model::walk_modules(*model)) {
    for (const auto kind : {Kind::backward_input, Kind::backward_output}) {
      handles.push_back(hooks::attach(module, kind, [&](Event&) { ++fired; }));
    }
  }
  in_threads(kThreads, [&] {
    for (int i = 0; i < 20; ++i) model->forward(at::ones({2, 2}).requires_grad_()).sum().backward();
  });
  // Two for each of six modules; the inner one is called twice.
  BOOST_TEST(fired == 2 * 7 * 20 * kThreads);
}

BOOST_AUTO_TEST_CASE(what_a_hook_held_is_freed_after_the_call_in_another_thread) {
  torch::nn::Sequential entries{torch::nn::ReLU()};
  torchtap::nn::ReLU direct;
  const std::vector<torchtap::model::ModuleRef> modules{torchtap::model::find(*entries, "0"),
                                                        torchtap::model::find(*entries, ""),
                                                        torchtap::model::find(*direct, "")};
  for (const auto& module : modules) {
    auto state = std::make_shared<int>(0);
    const std::weak_ptr<int> alive = state;
    std::atomic<bool> inside{false}, go_on{false};
    auto handle = hooks::attach(module, Kind::forward_pre, [&, state](Event&) {
      inside = true;
      while (!go_on) std::this_thread::yield();
    });
    state.reset();
    std::thread caller([&] {
      entries->forward(at::ones({2}));
      direct(at::ones({2}));
    });
    while (!inside) std::this_thread::yield();
    handle.remove();
    BOOST_TEST(!alive.expired(), "the call still runs it");
    go_on = true;
    caller.join();
    BOOST_TEST(alive.expired());
  }
}

BOOST_AUTO_TEST_CASE(released_while_others_run) {
  at::set_num_threads(1);
  auto model = make_model();
  std::atomic<int> fired{0};
  std::vector<std::weak_ptr<int>> alive;
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      torch::NoGradGuard no_grad;
      while (!stop) model->forward(at::ones({2, 2}));
    });
  }
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    for (const auto& module : torchtap::model::walk_modules(*model)) {
      auto state = std::make_shared<int>(0);
      alive.push_back(state);
      auto handle = hooks::attach(module, Kind::forward, [&fired, state](Event&) { ++fired; });
      if (i % 2 == 0) std::this_thread::yield();
      handle.release();
    }
  }
  stop = true;
  for (auto& caller : callers) caller.join();
  fired = 0;
  model->forward(at::ones({2, 2}));
  BOOST_TEST(fired == 7 * kRounds);
  model = nullptr;
  for (const auto& one : alive) BOOST_TEST(one.expired());
}

BOOST_AUTO_TEST_CASE(models_of_their_own) {
  std::atomic<int> fired{0};
  in_threads(kThreads, [&] {
    torch::NoGradGuard no_grad;
    for (int i = 0; i < 20; ++i) {
      auto model = make_model();
      std::vector<Handle> handles;
      for (const auto& module : torchtap::model::walk_modules(*model)) {
        handles.push_back(hooks::attach(module, Kind::forward, [&](Event&) { ++fired; }));
      }
      model->forward(at::ones({2, 2}));
      if (i % 2 == 0) model = nullptr;  // first the model, or first the handles
    }
  });
  BOOST_TEST(fired == 7 * 20 * kThreads);
}

BOOST_AUTO_TEST_SUITE_END()
