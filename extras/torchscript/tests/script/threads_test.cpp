// TorchScript models that run in some threads while others attach and detach hooks.
#include <boost/test/data/test_case.hpp>
#include <torch/csrc/jit/api/function_impl.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "tests/script/support.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(threads_tests)

namespace tap = torchtap;
using namespace torchtap_test;
using tap::recorders::ForwardOutput;
using tap::recorders::ForwardPre;

namespace {

std::shared_ptr<torch::jit::Graph> executed_graph(const torch::jit::Module& model,
                                                  const std::string& method = "forward") {
  return torch::jit::toGraphFunction(model.get_method(method).function()).optimized_graph();
}

bool has_operators(const torch::jit::Module& model) {
  if (executed_graph(model)->toString().find("torchtap::") != std::string::npos) return true;
  for (const auto& child : model.children()) {
    if (has_operators(child)) return true;
  }
  return false;
}

/// Runs a model in several threads, each with its own input, until it is destroyed, and compares each result
/// with the one from before.
class Runners {
 public:
  Runners(const torch::jit::Module& model, const at::Tensor& x, int threads) : model_(model) {
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < threads; ++i) {
      runs_.emplace_back(0);
      inputs_.push_back(x * (i + 1));
      // The origin of a sample is not known: it has to be one of those that the inputs lead to.
      ForwardOutput all;
      all.modules(model_);
      outputs_.push_back(model_.forward({inputs_.back()}).toTensor());
      for (const auto& module : all) {
        auto& seen = seen_[module.name()];
        for (const auto& tensor : module.tensors()) seen.push_back(tensor);
      }
    }
  }
  void start() {
    for (std::size_t i = 0; i < inputs_.size(); ++i) threads_.emplace_back([this, i] { run(i); });
  }
  void stop() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  ~Runners() { stop(); }

  /// Returns once each thread has begun and ended a run, or a thread has failed.
  void wait() const {
    std::vector<long> before;
    for (const auto& runs : runs_) before.push_back(runs.load());
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      // The first run to end may have begun before.
      while (runs_[i].load() < before[i] + 2 && wrong_.load() == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  /// The number of samples that are none of the model's.
  std::size_t foreign_samples(ForwardOutput& recorder) const {
    std::size_t foreign = 0;
    for (const auto& module : recorder) {
      const auto& seen = seen_.at(module.name());
      for (const auto& tensor : module.tensors()) {
        foreign += std::none_of(seen.begin(), seen.end(),
                                [&](const at::Tensor& one) { return at::equal(one, tensor); })
                       ? 1
                       : 0;
      }
    }
    return foreign;
  }
  long wrong() const { return wrong_.load(); }
  const std::string& error() const { return error_; }

 private:
  void run(std::size_t number) {
    const torch::NoGradGuard no_grad;
    try {
      while (!stop_) {
        if (!at::equal(model_.forward({inputs_[number]}).toTensor(), outputs_[number])) ++wrong_;
        ++runs_[number];
      }
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex_);
        error_ = error.what();
      }
      ++wrong_;
    }
  }

  torch::jit::Module model_;
  std::vector<at::Tensor> inputs_, outputs_;
  std::map<std::string, std::vector<at::Tensor>> seen_;
  std::atomic<bool> stop_{false};
  std::deque<std::atomic<long>> runs_;  // of each thread
  std::atomic<long> wrong_{0};
  std::mutex mutex_;
  std::string error_;
  std::vector<std::thread> threads_;
};

struct Found {
  std::int64_t samples = 0;
  std::size_t foreign = 0, missing = 0;  // samples, and modules without any
  // Kept until the threads have ended: LibTorch's code, in which ThreadSanitizer sees no atomics, frees the
  // tensors.
  std::vector<tap::core::Value> removed;
};

void attach_and_detach(const torch::jit::Module& model, const Runners& runners, int first, Found& found) {
  const torch::NoGradGuard no_grad;
  const auto look = [&](ForwardOutput& recorder) {
    for (const auto& module : recorder) found.missing += module.samples() == 0 ? 1 : 0;
    found.foreign += runners.foreign_samples(recorder);
    found.samples += recorder.samples();
  };
  for (int cycle = first; cycle < first + 150; ++cycle) {
    switch (cycle % 4) {
      case 0: {
        ForwardOutput all;
        all.modules(model);
        runners.wait();
        all.detach();
        look(all);
        break;
      }
      case 1: {
        ForwardPre inputs(tap::reductions::Sum{});
        inputs.modules(model, tap::selectors::types("Linear"));
        std::this_thread::yield();
        break;
      }
      case 2: {
        ForwardOutput some, mean(tap::reductions::Mean{});
        some.modules(model, tap::selectors::names("pair.*"));
        mean.modules(model);
        found.removed.push_back(some.remove(0));
        mean.detach();
        some.reset();
        break;
      }
      default: {
        ForwardOutput one;
        one.modules(model, tap::selectors::names("twin.inner.1"));
        runners.wait();
        one.detach();
        look(one);
      }
    }
  }
}

void run_while_others_attach(const std::string& name) {
  auto model = load(name);
  Runners runners(model, arguments("siamese")[0].toTensor(), 3);
  runners.start();
  Found found, others;
  std::thread other([&] { attach_and_detach(model, runners, 2, others); });
  attach_and_detach(model, runners, 0, found);
  other.join();
  runners.stop();
  BOOST_TEST(runners.wrong() == 0, runners.error());
  BOOST_TEST(found.samples > 0);
  BOOST_TEST(found.foreign == 0U);
  BOOST_TEST(found.missing == 0U);
  BOOST_TEST(others.foreign == 0U);
  BOOST_TEST(others.missing == 0U);
  BOOST_TEST(!has_operators(model));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(threads)

BOOST_DATA_TEST_CASE(see_what_a_model_computes_while_others_attach,
                     boost::unit_test::data::make({"siamese.script", "siamese.trace"}), name) {
  run_while_others_attach(name);
}

// Code that LibTorch compiles meanwhile for a first call may contain functions of which only some have hooks:
// it must not stay.
BOOST_AUTO_TEST_CASE(that_run_for_the_first_time_leave_no_trace) {
  const auto inputs = arguments("siamese");
  const auto plain = load("siamese.script").forward(inputs).toTensor();
  int wrong = 0, lost = 0, left = 0;
  for (int round = 0; round < 40; ++round) {
    auto model = load(round % 2 == 0 ? "siamese.script" : "siamese.trace");
    std::atomic<bool> go{false};
    std::atomic<int> differ{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        const torch::NoGradGuard no_grad;
        while (!go) std::this_thread::yield();
        for (int i = 0; i < 3; ++i) differ += at::equal(model.forward(inputs).toTensor(), plain) ? 0 : 1;
      });
    }
    go = true;
    ForwardOutput outputs(tap::reductions::Sum{});
    outputs.modules(model, tap::selectors::types("Linear"));
    if (round % 4 >= 2) outputs.detach();
    for (auto& thread : threads) thread.join();
    wrong += differ;
    if (round % 4 < 2) {
      const auto before = outputs.samples();
      model.forward(inputs);
      lost += outputs.samples() == before + 6 ? 0 : 1;
      outputs.detach();
    }
    left += has_operators(model) ? 1 : 0;
    model.forward(inputs);
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(lost == 0);
  BOOST_TEST(left == 0);
}

// A lock per function, all held at once, would be too much for ThreadSanitizer.
BOOST_AUTO_TEST_CASE(attach_to_hundreds_of_modules) {
  constexpr int kModules = 160;
  torch::jit::Module model("Many");
  std::string body = "def forward(self, x):\n";
  for (int i = 0; i < kModules; ++i) {
    torch::jit::Module block("Block" + std::to_string(i));
    block.define("def forward(self, x):\n    return x + " + std::to_string(i) + "\n");
    model.register_module("b" + std::to_string(i), block);
    body += "    x = self.b" + std::to_string(i) + ".forward(x)\n";
  }
  model.define(body + "    return x\n");
  const at::Tensor x = at::zeros({2});
  Runners runners(model, x, 1);
  runners.start();
  for (int round = 0; round < 3; ++round) {
    ForwardOutput outputs;
    outputs.modules(model);
    runners.wait();
    outputs.detach();
    BOOST_TEST(outputs.size() == kModules + 1);
    BOOST_TEST(outputs.at("b159").samples() > 0);
    BOOST_TEST(runners.foreign_samples(outputs) == 0U);
  }
  runners.stop();
  BOOST_TEST(runners.wrong() == 0, runners.error());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(variants)

// LibTorch runs a call with an executor that only the function holds.
BOOST_AUTO_TEST_CASE(outlive_the_calls_that_execute_them) {
  auto model = load("siamese.script");
  const auto inputs = arguments("siamese");
  const auto plain = model.forward(inputs).toTensor();
  std::vector<std::string> paths;
  const auto modules = tap::selectors::modules(model);
  for (const auto& module : modules.vector()) {
    if (module.path().find("twin") == std::string::npos) paths.push_back(module.path());
  }
  std::weak_ptr<torch::jit::Graph> executed;
  int attached = 0;
  auto outer = tap::hooks::attach(
      tap::model::find(model, "pair"), tap::hooks::Kind::forward_output, [&](tap::hooks::Event&) {
        if (attached != 0) return;
        executed = executed_graph(model);
        for (unsigned bits = 1; bits < (1U << paths.size()); ++bits) {
          std::vector<tap::hooks::Handle> handles;
          const tap::hooks::DeferredCompile batch;
          for (std::size_t i = 0; i < paths.size(); ++i) {
            if ((bits & (1U << i)) == 0) continue;
            handles.push_back(tap::hooks::attach(tap::model::find(model, paths[i]),
                                                 tap::hooks::Kind::forward_output,
                                                 [](tap::hooks::Event&) {}));
          }
          attached += static_cast<int>(handles.size());
        }
      });
  BOOST_TEST(at::equal(model.forward(inputs).toTensor(), plain));
  BOOST_TEST(attached > 20);
  BOOST_TEST(!executed.expired());
  outer.remove();
  BOOST_TEST(!has_operators(model));
  BOOST_TEST(at::equal(model.forward(inputs).toTensor(), plain));
}

// Each set of modules has its own code, which is kept; after several sets, one code serves all.
BOOST_AUTO_TEST_CASE(are_not_made_without_end) {
  constexpr int kModules = 24;
  torch::jit::Module model("Many");
  std::string body = "def forward(self, x):\n";
  for (int i = 0; i < kModules; ++i) {
    torch::jit::Module block("Block" + std::to_string(i));
    block.define("def forward(self, x):\n    return x + " + std::to_string(i) + "\n");
    model.register_module("b" + std::to_string(i), block);
    body += "    x = self.b" + std::to_string(i) + ".forward(x)\n";
  }
  model.define(body + "    return x\n");
  const at::Tensor x = at::zeros({2});
  const void* plain = executed_graph(model).get();
  std::set<const void*> graphs;
  std::int64_t sum = 0;
  for (int i = 0; i < kModules; ++i) {
    ForwardOutput output;
    output.modules(model, tap::selectors::names("b" + std::to_string(i)));
    sum += i;
    for (int run = 0; run < 2; ++run) {
      BOOST_TEST(at::equal(model.forward({x}).toTensor(), at::full({2}, kModules * (kModules - 1) / 2)));
    }
    BOOST_TEST(output.samples() == 2);
    BOOST_TEST(at::equal(output[0].tensors().at(1), at::full({2}, sum)));
    graphs.insert(executed_graph(model).get());
    output.detach();
    BOOST_TEST(executed_graph(model).get() == plain);
  }
  BOOST_TEST(graphs.size() > 1U);
  BOOST_TEST(graphs.size() <= 10U);
}

// The code of a method that is compiled while some hooks are gone must have them once they are back.
BOOST_AUTO_TEST_CASE(of_other_methods_follow_hooks_that_come_back) {
  auto model = load("values.script");
  const auto x = at::randn({4, 6});
  int relus = 0, linears = 0;
  const auto attach = [&](const char* path, int& calls) {
    return tap::hooks::attach(tap::model::find(model, path), tap::hooks::Kind::forward_output,
                              [&](tap::hooks::Event&) { ++calls; });
  };
  auto relu = attach("blocks.1", relus);
  auto linear = attach("first", linears);
  linear.remove();
  model.get_method("encode")({x});
  BOOST_TEST(relus == 1);
  linear = attach("first", linears);
  model.get_method("encode")({x});
  BOOST_TEST(relus == 2);
  BOOST_TEST(linears == 1);
}

// Hooks are found by object and method name.
BOOST_AUTO_TEST_CASE(of_a_function_have_one_name) {
  torch::jit::Module model("Overloaded");
  model.define("def encode__0(self, x):\n    return x + 1\n");
  const at::Tensor x = at::zeros({2});
  const auto run = [&] { return model.get_method("encode__0")({x}).toTensor(); };
  int calls = 0;
  const auto count = [&](tap::hooks::Event&) { ++calls; };
  {
    auto all = tap::hooks::attach(model, tap::hooks::Kind::forward_output, count, "encode");
    BOOST_CHECK_EXCEPTION(
        std::ignore = tap::hooks::attach(model, tap::hooks::Kind::forward_output, count, "encode__0"),
        c10::NotImplementedError, says({"hooks::attach", "encode__0", "\"encode\""}));
    run();
    BOOST_TEST(calls == 1);
  }
  auto one = tap::hooks::attach(model, tap::hooks::Kind::forward_output, count, "encode__0");
  run();
  BOOST_TEST(calls == 2);
  one.remove();
  BOOST_TEST(at::equal(run(), x + 1));
  BOOST_TEST(calls == 2);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
