// Makes LibTorch's tests run with empty hooks and a recorder on every module that can be reached.
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/transparent/transparent.hpp>

namespace {

namespace tap = torchtap;
using tap::hooks::Kind;
using tap::transparent::EveryModule;

class Hooked final : public testing::Environment {
 public:
  void SetUp() override {
    for (const std::string& problem : tap::transparent::check()) std::cout << "not seen: " << problem << '\n';
    const auto empty = [](torch::nn::Module& /*module*/, tap::hooks::Event& /*event*/) {};
    for (const Kind kind : {Kind::forward, Kind::backward_input, Kind::backward_output}) {
      hooks_.push_back(std::make_unique<EveryModule>(kind, empty));
    }
    hooks_.push_back(std::make_unique<EveryModule>(
        Kind::forward_pre,
        [this](torch::nn::Module& module, tap::hooks::Event& /*event*/) { record(module); }));
  }

  void TearDown() override {
    std::int64_t samples = 0;
    for (const auto& one : recorders_) samples += one.recorder.samples();
    std::cout << "hooked: " << samples << " samples of " << recorders_.size() << " modules\n";
    for (const std::string& type : hooks_.back()->missed()) std::cout << "missed: " << type << '\n';
    hooks_.clear();
  }

 private:
  struct Recorded {
    std::weak_ptr<torch::nn::Module> module;
    tap::recorders::ForwardOutput recorder;
  };

  /// Attaches a recorder at the module's first call.
  void record(torch::nn::Module& module) {
    const std::lock_guard lock(mutex_);
    std::size_t& at = places_.try_emplace(&module, recorders_.size()).first->second;
    if (at < recorders_.size() && !recorders_[at].module.expired()) return;
    at = recorders_.size();
    recorders_.push_back({module.weak_from_this(), tap::recorders::ForwardOutput(options_)});
    recorders_.back().recorder.attach({tap::model::walk_modules(module).front()});
  }

  const tap::recorders::RecorderOptions options_ =
      tap::recorders::RecorderOptions().reduction(tap::reductions::Count()).all_tensors();
  std::vector<std::unique_ptr<EveryModule>> hooks_;
  std::mutex mutex_;
  std::deque<Recorded> recorders_;  // also of modules that are gone, for their samples
  std::unordered_map<const torch::nn::Module*, std::size_t> places_;  // the last recorder of an address
};

const auto* const hooked = testing::AddGlobalTestEnvironment(new Hooked);

}  // namespace
