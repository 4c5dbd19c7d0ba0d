// Continues when an event cannot be recorded: errors go to a handler instead of the caller of forward, and
// the event is left out.

#include <torch/torch.h>

#include <iostream>
#include <map>
#include <mutex>
#include <string>

#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/mean.hpp>

namespace tap = torchtap;

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  torch::nn::Sequential model({{"conv", torch::nn::Conv2d(1, 4, 3)},
                               {"pool", torch::nn::AdaptiveAvgPool2d(1)},
                               {"flatten", torch::nn::Flatten()},
                               {"head", torch::nn::Linear(4, 2)}});

  // Without a handler the error reaches the caller of forward. It names the module and the expected and
  // actual shapes.
  tap::recorders::ForwardOutput strict(tap::reductions::Mean{});
  strict.attach(model, tap::selectors::names("conv"));
  model->forward(torch::randn({8, 1, 12, 12}));
  bool thrown = false;
  try {
    model->forward(torch::randn({8, 1, 20, 20}));
  } catch (const c10::Error& error) {
    std::cout << "thrown: " << error.what_without_backtrace() << "\n";
    thrown = true;
  }
  strict.detach();

  // With a handler, forward returns normally. Several threads may call the handler.
  std::mutex mutex;
  std::map<std::string, int> failures;
  tap::recorders::ForwardOutput lenient(
      tap::recorders::Options()
          .reduction(tap::reductions::Mean{})
          .on_error([&](const std::string& path, const std::exception_ptr& error) {
            const std::lock_guard lock(mutex);
            ++failures[path];
            try {
              std::rethrow_exception(error);
            } catch (const c10::Error& reason) {
              std::cout << "handled: " << reason.what_without_backtrace() << "\n";
            }
          }));
  lenient.attach(model);
  model->forward(torch::randn({8, 1, 12, 12}));
  const at::Tensor input = torch::randn({8, 1, 20, 20});
  const at::Tensor output = model->forward(input);  // "conv" now returns another shape

  lenient.detach();
  const bool right = thrown && strict[0].samples() == 1 &&
                     failures == std::map<std::string, int>{{"conv", 1}} &&
                     lenient.at("conv").samples() == 1 && lenient.at("head").samples() == 2 &&
                     output.equal(model->forward(input));
  std::cout << (right ? "One event was left out, and all others were recorded.\n" : "WRONG\n");
  return right ? 0 : 1;
}
