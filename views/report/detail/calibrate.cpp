// Measures an empty module and an empty operation, with and without watching.
#include <ATen/Functions.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>

#include <torchtap/hooks/extend/own_calls.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/views/report/detail/calibrate.hpp>
#include <torchtap/views/report/report.hpp>

namespace torchtap::views::report::detail {
namespace {

constexpr int calls = 200, repeats = 15;

std::int64_t nanoseconds_now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// A separate clock, so that calibration does not call itself.
ReportOptions plain() {
  return ReportOptions()
      .memory(false)
      .work(false)
      .non_finite(OnNonFinite::ignore)
      .warmup(5)
      .clock(&nanoseconds_now);
}

struct EmptyImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};

struct CallerImpl : torch::nn::Module {
  std::shared_ptr<hooks::Hooked<EmptyImpl>> inner =
      register_module("inner", std::make_shared<hooks::Hooked<EmptyImpl>>());
  at::Tensor forward(const at::Tensor& x) {
    for (int i = 0; i < calls; ++i) inner->forward(x);
    return x;
  }
};

struct OperationsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    for (int i = 0; i < calls; ++i) at::alias(x);
    return x;
  }
};

constexpr const char* script_caller = R"(
def forward(self, x):
    for i in range(200):
        self.inner.forward(x)
    return x
)";

std::int64_t each(double seconds) {
  return std::max<std::int64_t>(static_cast<std::int64_t>(seconds * 1e9 / calls), 0);
}

/// The median time of a call in a report, with the modules inside and without.
Measurements measure(Report& report, const std::function<void()>& call) {
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto recording = report.record();
    call();
  }
  return report.results();
}

void calibrate_calls(const Measurements& results, Calibration& result) {
  result.inside = each(results.root.children.at(0).forward.inclusive.median);
  result.around = each(results.root.forward.self.median);
}

Calibration measure_all(bool scripted) {
  const at::Tensor x = at::ones({1});
  Calibration result;
  if (scripted) {
    torch::jit::Module inner("TorchtapInner"), caller("TorchtapCaller");
    inner.define("def forward(self, x):\n    return x\n");
    caller.register_module("inner", inner);
    caller.define(script_caller);
    Report report(caller, plain());
    calibrate_calls(measure(report, [&] { caller.forward({x}); }), result);
  } else {
    hooks::Hooked<CallerImpl> caller;
    Report report(caller, plain());
    calibrate_calls(measure(report, [&] { caller.forward(x); }), result);
  }
  hooks::Hooked<OperationsImpl> operations;
  std::vector<std::int64_t> bare;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const std::int64_t began = nanoseconds_now();
    operations.forward(x);
    bare.push_back(nanoseconds_now() - began);
  }
  std::sort(bare.begin(), bare.end());
  Report report(operations, plain().work(true));
  const Measurements results = measure(report, [&] { operations.forward(x); });
  result.operation =
      each(results.root.forward.inclusive.median - static_cast<double>(bare[repeats / 2]) * 1e-9);
  return result;
}

/// In a thread without the scopes and modes of this one.
Calibration measure_apart(bool scripted) {
  Calibration result;
  std::exception_ptr error;
  std::thread([&] {
    const hooks::extend::OwnCalls own;
    try {
      result = measure_all(scripted);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error != nullptr) std::rethrow_exception(error);
  return result;
}

}  // namespace

Calibration calibration(bool scripted) {
  if (scripted) {
    static const Calibration script = measure_apart(true);
    return script;
  }
  static const Calibration plain_calls = measure_apart(false);
  return plain_calls;
}

}  // namespace torchtap::views::report::detail
