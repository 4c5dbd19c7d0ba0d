// Continues when an event cannot be recorded: samples that do not fit are left out and counted, and errors go
// to a handler instead of the caller of forward.

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

  // Without a handler, a sample that does not fit is left out and counted. Any other error, such as a tensor
  // that is asked for and not there, reaches the caller of forward.
  tap::recorders::ForwardOutput counted(tap::reductions::Mean{});
  counted.attach(model, tap::selectors::names("conv"));
  model->forward(torch::randn({8, 1, 12, 12}));
  model->forward(torch::randn({8, 1, 20, 20}));
  std::cout << "conv: " << counted[0].note() << "\n";
  counted.detach();

  // With a handler, all errors go there, and forward returns normally. Several threads may call it.
  std::mutex mutex;
  std::map<std::string, int> failures;
  tap::recorders::ForwardOutput lenient(
      tap::recorders::RecorderOptions()
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
  const bool right = counted[0].samples() == 1 && counted[0].left_out() == 1 &&
                     failures == std::map<std::string, int>{{"conv", 1}} &&
                     lenient.at("conv").samples() == 1 && lenient.at("head").samples() == 2 &&
                     output.equal(model->forward(input));
  std::cout << (right ? "One event was left out, and all others were recorded.\n" : "WRONG\n");
  return right ? 0 : 1;
}
