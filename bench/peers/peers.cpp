/// torchtap's side of bench/peers/run: one task in this process, as JSON lines that peers.py makes a table
/// of.
///
/// usage: peers TASK MODEL FOLDER     FOLDER has MODEL.pt and data.pt, both TorchScript

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/var_mean.h>
#include <malloc.h>
#include <time.h>
#include <torch/script.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/views/monitor/drift.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/trace/trace.hpp>

namespace {

namespace tap = torchtap;
namespace reductions = tap::reductions;
using Kept = std::shared_ptr<const void>;

/// Work beside a forward: `step` is measured and returns what the task keeps, `clear` drops the rest.
struct Task {
  std::function<Kept(const at::Tensor&)> step;
  std::function<void()> clear = [] {};
  /// Whether the results are right after so many steps, or what they say.
  std::function<std::string(std::int64_t steps)> check = [](std::int64_t) { return ""; };
};

/// Milliseconds of this process on the processor.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// Megabytes of this process: "VmRSS" now, "VmHWM" at the peak.
double megabytes(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == what + ":") return status >> word, std::stod(word) / 1e3;
  }
  return 0;
}

void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

template <class Recorder>
Task recording(torch::jit::Module model, tap::recorders::RecorderOptions options, bool keeps,
               std::function<std::string(Recorder&, std::int64_t)> check) {
  auto recorder = std::make_shared<Recorder>(std::move(options));
  recorder->attach(model, tap::selectors::types("Conv2d", "BatchNorm2d", "Linear").allow_none());
  return {[model, recorder](const at::Tensor& x) mutable { return model.forward({x}), Kept(); },
          [recorder, keeps] { return keeps ? recorder->reset() : void(); },
          [recorder, check](std::int64_t steps) { return check(*recorder, steps); }};
}

std::string right(bool is) {
  return is ? "right" : "WRONG";
}

Task task_of(const std::string& name, torch::jit::Module model, const std::vector<at::Tensor>& inputs) {
  using tap::recorders::ForwardPre;
  using tap::recorders::RecorderOptions;
  if (name == "none") return {[=](const at::Tensor& x) mutable { return model.forward({x}), Kept(); }};
  if (name == "sum") {
    return recording<ForwardPre>(model, RecorderOptions().reduction(reductions::Sum{}), false,
                                 [inputs](ForwardPre& sums, std::int64_t steps) {
                                   bool is = static_cast<std::size_t>(sums.size()) == inputs.size();
                                   for (std::size_t i = 0; is && i < inputs.size(); ++i) {
                                     is = sums[i].tensor().allclose(inputs[i] * steps, 1e-3, 1e-3);
                                   }
                                   return right(is);
                                 });
  }
  if (name == "moments") {
    const auto all = reductions::MomentsOptions().over_all(true);
    return recording<ForwardPre>(
        model,
        RecorderOptions().reduction(reductions::Series(
            reductions::Moments(all), reductions::Min(reductions::MinOptions().over_all(true)),
            reductions::Max(reductions::MaxOptions().over_all(true)))),
        false, [inputs](ForwardPre& moments, std::int64_t) {
          bool is = static_cast<std::size_t>(moments.size()) == inputs.size();
          for (std::size_t i = 0; is && i < inputs.size(); ++i) {
            const auto [variance, mean] = at::var_mean(inputs[i]);
            is = std::abs(moments[i].tensor("moments.mean").item<double>() - mean.item<double>()) < 1e-4 &&
                 moments[i].tensor("max.value").item<float>() == inputs[i].max().item<float>();
          }
          return right(is);
        });
  }
  if (name == "kept" || name == "kept alias") {
    const auto capture = name == "kept" ? tap::recorders::Capture::copy : tap::recorders::Capture::alias;
    return recording<ForwardPre>(model, RecorderOptions().capture(capture), true,
                                 [inputs](ForwardPre& kept, std::int64_t) {
                                   bool is = static_cast<std::size_t>(kept.size()) == inputs.size();
                                   for (std::size_t i = 0; is && i < inputs.size(); ++i) {
                                     is = kept[i].tensors().at(0).allclose(inputs[i], 1e-3, 1e-3);
                                   }
                                   return right(is);
                                 });
  }
  if (name == "trace" || name == "trace all") {
    using namespace tap::views;
    auto nodes = std::make_shared<std::int64_t>();
    return {[=](const at::Tensor& x) -> Kept {
              auto history = std::make_shared<trace::History>(trace::log_forward_pass(
                  model, {x},
                  trace::TraceOptions().save(name == "trace" ? trace::Save::none : trace::Save::all)));
              *nodes = history->size();
              return history;
            },
            [] {}, [=](std::int64_t) { return std::to_string(*nodes) + " nodes"; }};
  }
  if (name == "report" || name == "report times") {
    namespace report = tap::views::report;
    const auto options = name == "report"
                             ? report::ReportOptions()
                             : report::ReportOptions().memory(false).non_finite(report::OnNonFinite::ignore);
    auto macs = std::make_shared<std::int64_t>();
    return {[=](const at::Tensor& x) mutable -> Kept {
              report::Report costs(model, options);
              {
                const auto repeat = costs.record();
                model.forward({x});
              }
              std::ostringstream table;
              table << costs;
              *macs = costs.results().root.forward.work.macs;
              return std::make_shared<std::string>(table.str());
            },
            [] {}, [=](std::int64_t) { return std::to_string(*macs) + " MACs"; }};
  }
  TORCH_CHECK_VALUE(false, "there is no task \"", name, "\"");
}

void say(const std::string& task, const std::string& model, const std::vector<double>& bare,
         const std::vector<double>& takes, double memory, const std::string& says) {
  std::printf(
      R"({"who": "torchtap", "task": "%s", "model": "%s", "bare": %g, "takes": %g, "memory": %g, "says": "%s"})"
      "\n",
      task.c_str(), model.c_str(), bare.empty() ? 0 : *std::min_element(bare.begin(), bare.end()),
      *std::min_element(takes.begin(), takes.end()), memory, says.c_str());
}

/// Rounds of both in turns, for some seconds.
void measure(const std::string& name, const std::string& of, const std::string& folder) {
  auto data = torch::jit::load(folder + "/data.pt");
  const auto load = [&](const std::string& model) { return torch::jit::load(folder + "/" + model + ".pt"); };
  const at::Tensor x = data.attr("x_" + of).toTensor();
  auto bare = load(of);
  {  // what is made once in a process
    Task small = task_of(name, load("mlp"), {});
    for (int i = 0; i < 3; ++i) small.step(data.attr("x_mlp").toTensor()), small.clear();
  }
  double memory = 0;
  if (of != "mlp") {  // of eight times as many images, so that the process itself counts for little
    const at::Tensor many = x.repeat({8, 1, 1, 1});
    Task task = task_of(name, load(of), {});
    for (int i = 0; i < 2; ++i) bare.forward({many});
    ::malloc_trim(0);  // or what is free in the heap hides what the task takes
    const double before = megabytes("VmRSS");
    forget_peak();
    const Kept kept = task.step(many);
    memory = megabytes("VmHWM") - before;
  }
  Task task = task_of(name, load(of), data.attr("inputs_" + of).toTensorVector());
  Kept kept;
  task.step(x);
  task.step(x);
  const std::string says = task.check(2);
  task.clear();
  const int calls = of == "mlp" ? 500 : 1;
  std::vector<double> without, with;
  const char* const given = std::getenv("SECONDS_EACH");
  const double seconds = given != nullptr ? std::stod(given) : 2;
  for (const double begin = now(); with.size() < 5 || now() - begin < seconds * 1e3;) {
    double start = now();
    for (int i = 0; i < calls; ++i) bare.forward({x});
    without.push_back((now() - start) / calls);
    start = now();
    for (int i = 0; i < calls; ++i) kept = task.step(x);
    with.push_back((now() - start) / calls);
    kept.reset(), task.clear();
  }
  say(name, of, without, with, memory, says);
}

/// Tables of rows and columns, as blocks of eight rows: the reference is learned, then two windows are
/// judged.
void drift(const std::string& folder) {
  auto data = torch::jit::load(folder + "/data.pt");
  const auto table = [&](const char* name) { return data.attr(name).toTensor(); };
  const auto blocks = [](const at::Tensor& columns) {
    reductions::Blocks result;
    for (const at::Tensor& block : columns.split(8)) result.update(block);
    return result.results();
  };
  for (const bool by_column : {true, false}) {
    const auto parts = [&](const char* name) {
      return by_column ? table(name).contiguous().split(1, 1) : std::vector<at::Tensor>{table(name)};
    };
    std::vector<double> learn, judge;
    std::string says;
    for (int round = 0; round < 3; ++round) {
      double start = now();
      std::vector<tap::views::monitor::DriftTest> tests;
      for (const at::Tensor& part : parts("reference")) tests.emplace_back(blocks(part));
      learn.push_back(now() - start);
      says.clear();
      for (const char* window : {"same", "changed"}) {
        start = now();
        std::size_t found = 0, i = 0;
        for (const at::Tensor& part : parts(window)) found += tests[i++].compare(blocks(part)).drifted;
        judge.push_back(now() - start);
        says +=
            std::string(window) + ": " + std::to_string(found) + " of " + std::to_string(tests.size()) + " ";
      }
    }
    const std::string what = by_column ? "columns" : "whole";
    say("drift learn " + what, "table", {}, learn, 0, says);
    say("drift judge " + what, "table", {}, judge, 0, says);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::cerr << "usage: peers TASK MODEL FOLDER\n", 2;
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  if (std::string(argv[1]) == "drift") {
    drift(argv[3]);
  } else {
    measure(argv[1], argv[2], argv[3]);
  }
}
