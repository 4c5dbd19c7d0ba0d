// A forward that is not sampled allocates nothing for the monitor.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <cstdlib>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/monitor/monitor.hpp>

#include "tests/support.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TORCHTAP_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TORCHTAP_TEST_SANITIZED 1
#endif

#if defined(__GLIBC__) && !defined(TORCHTAP_TEST_SANITIZED)

namespace {
thread_local long allocations_here = 0;  // of any thread, this one's are read
}

// In place of the C library's, for all of this program. `operator new` and LibTorch call it.
extern "C" {
void* __libc_malloc(std::size_t size);
void* malloc(std::size_t size) {
  ++allocations_here;
  return __libc_malloc(size);
}
}

BOOST_AUTO_TEST_SUITE(monitor_allocations)

namespace tap = torchtap;
using tap::views::monitor::Monitor;
using tap::views::monitor::MonitorOptions;

namespace {

template <class Function>
long allocations_of(Function&& function) {
  const long before = allocations_here;
  function();
  return allocations_here - before;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_thousandth_forward_that_is_not_sampled_allocates_nothing_more) {
  const torchtap_test::TemporaryDirectory folder;
  const torch::NoGradGuard no_grad;
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 4));
  const at::Tensor x = at::randn({2, 8});
  const auto forward = [&] { model->forward(x); };
  for (int i = 0; i < 1000; ++i) forward();
  const long plain = allocations_of(forward);
  BOOST_TEST(allocations_of([] { delete new int; }) == 1);  // they are counted

  // What hooks that do nothing take.
  long hooked = 0;
  {
    std::vector<tap::hooks::Handle> handles;
    for (const auto& module : tap::model::walk_modules(*model)) {
      if (module.path().empty()) {
        for (int i = 0; i < 2; ++i)
          handles.push_back(
              tap::hooks::attach(module, tap::hooks::Kind::forward_pre, [](tap::hooks::Event&) {}));
        handles.push_back(
            tap::hooks::attach(module, tap::hooks::Kind::forward_output, [](tap::hooks::Event&) {}));
      }
      handles.push_back(
          tap::hooks::attach(module, tap::hooks::Kind::forward_output, [](tap::hooks::Event&) {}));
    }
    for (int i = 0; i < 1000; ++i) forward();
    hooked = allocations_of(forward);
  }

  for (const bool thread : {true, false}) {
    Monitor watch(model, "", MonitorOptions().cost(1e-9).thread(thread).incidents(folder / "incidents"));
    const auto sampled = [&] {
      const std::string text = watch.metrics(), name = "torchtap_forwards_sampled_total{model=\"model\"} ";
      return std::stol(text.substr(text.find(name) + name.size()));
    };
    for (int i = 0; i < 1000; ++i) forward();
    long before = 0, allocations = 0;
    do {  // once more, if it happens to be sampled
      before = sampled();
      allocations = allocations_of(forward);
    } while (sampled() != before);
    BOOST_TEST(before > 0);
    BOOST_TEST(allocations == hooked);
  }
  BOOST_TEST_MESSAGE(plain << " allocations of a forward, " << hooked << " with hooks that do nothing");
}

BOOST_AUTO_TEST_SUITE_END()

#endif
