// Several stacks in one thread, as fibers and coroutines have them: calls do not end in reverse order.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

// The sanitizers know one stack a thread.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <ucontext.h>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>

BOOST_AUTO_TEST_SUITE(fibers)

namespace hooks = torchtap::hooks;
namespace nn = torchtap::nn;

namespace {

/// Two stacks, of which one runs at a time.
struct Fibers {
  ucontext_t caller, contexts[2];
  std::vector<char> stacks[2] = {std::vector<char>(1 << 18), std::vector<char>(1 << 18)};
  std::function<void()> bodies[2];
  bool done[2] = {false, false};
  int running = 0;

  static Fibers& instance() {
    static Fibers fibers;
    return fibers;
  }
  static void begin() {
    Fibers& fibers = instance();
    const int self = fibers.running;
    fibers.bodies[self]();
    fibers.done[self] = true;
    fibers.running = 1 - self;
    ::setcontext(fibers.done[1 - self] ? &fibers.caller : &fibers.contexts[1 - self]);
  }
  /// Lets the other one run.
  void yield() {
    const int self = running;
    if (done[1 - self]) return;
    running = 1 - self;
    ::swapcontext(&contexts[self], &contexts[1 - self]);
  }
  void run(const std::function<void()>& first, const std::function<void()>& second) {
    bodies[0] = first;
    bodies[1] = second;
    for (int i = 0; i < 2; ++i) {
      ::getcontext(&contexts[i]);
      contexts[i].uc_stack.ss_sp = stacks[i].data();
      contexts[i].uc_stack.ss_size = stacks[i].size();
      ::makecontext(&contexts[i], &Fibers::begin, 0);
    }
    ::swapcontext(&caller, &contexts[0]);
  }
};

torch::nn::Sequential yielding(int entries) {
  torch::nn::Sequential model;
  for (int i = 0; i < entries; ++i) {
    model->push_back(torch::nn::Functional([](const at::Tensor& x) {
      Fibers::instance().yield();
      return x + 1;
    }));
  }
  return model;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_call_is_seen_once) {
  auto longer = yielding(3), shorter = yielding(2), shared = yielding(2);
  nn::Functional direct([](const at::Tensor& x) {
    Fibers::instance().yield();
    return x * 2;
  });
  int calls[4] = {0, 0, 0, 0}, entries = 0;
  std::vector<hooks::Handle> handles;
  torch::nn::Module* const modules[] = {longer.get(), shorter.get(), shared.get(), direct.get()};
  for (int i = 0; i < 4; ++i) {
    handles.push_back(
        hooks::attach(*modules[i], hooks::Kind::forward, [&calls, i](hooks::Event&) { ++calls[i]; }));
  }
  handles.push_back(hooks::attach(torchtap::model::find(*shared, "1"), hooks::Kind::forward_output,
                                  [&entries](hooks::Event&) { ++entries; }));
  double results[2] = {0, 0};
  const auto body = [&](torch::nn::Sequential& own, int place, int times) {
    for (int i = 0; i < times; ++i) {
      results[place] += direct(shared->forward(own->forward(at::zeros({1})))).item<double>();
    }
  };
  Fibers::instance().run([&] { body(longer, 0, 3); }, [&] { body(shorter, 1, 4); });
  BOOST_TEST(results[0] == 3 * 10);
  BOOST_TEST(results[1] == 4 * 8);
  BOOST_TEST(calls[0] == 3);
  BOOST_TEST(calls[1] == 4);
  BOOST_TEST(calls[2] == 7);
  BOOST_TEST(calls[3] == 7);
  BOOST_TEST(entries == 7);
}

BOOST_AUTO_TEST_SUITE_END()

#endif
