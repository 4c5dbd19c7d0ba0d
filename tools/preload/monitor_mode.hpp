#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torchtap/views/monitor/extend/judge.hpp>
#include <torchtap/views/monitor/learner.hpp>

#include "config.hpp"
#include "models.hpp"
#include "process_report.hpp"
#include "resting.hpp"
#include "view_mode.hpp"

namespace torchtap::tools::preload {

/// Watches the program's models for alarms (`torchtap preload --monitor`), or learns references of them
/// (`--learn`): counts here, and tells the launcher, which judges and writes.
///
/// Each model is watched from its first call on until the program ends. When it is destroyed, the next model
/// of its paths and types goes on with that.
class MonitorMode final : public Mode {
 public:
  explicit MonitorMode(const Config& config);

  void found_root(const torch::nn::Module& root) override;
  void called(torch::nn::Module& module) override;
  void backward(bool /*begins*/) override {}
  bool hides_backward() const noexcept override { return false; }
  bool waits_for_script() const noexcept override { return !done_; }
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original) override;
  void finish() noexcept override;

  /// A child watches the models that it runs itself, and has folders of its own.
  MonitorMode* for_child() override;

 private:
  /// What is watched, or learned, of a model; it goes on with another object when its model is gone.
  struct Watched {
    std::string name;
    std::size_t number = 0;  // among all of the process
    ModelKind kind;
    std::shared_ptr<views::monitor::extend::Watcher> watcher;
    std::optional<views::monitor::Learner> learner;
    std::vector<hooks::Handle> ends;            // of forwards
    std::atomic<std::uint64_t> unpublished{0};  // forwards
    ~Watched();
  };
  struct Model : FoundModel {
    std::unique_ptr<Watched> watched;
  };

  void begin(Model& model, const std::vector<model::ModuleRef>& modules);
  void watch(Watched& watched, const std::vector<model::ModuleRef>& modules) const;
  void hook_ends(Watched& watched, const std::vector<model::ModuleRef>& modules);
  bool follow(Model& model, const std::vector<model::ModuleRef>& modules);
  void publish(Watched& watched, bool last = false);
  std::string free_name(std::string name) const;
  void end(std::unique_ptr<Watched> watched);
  bool bury(Model& model);
  void add_notes();

  Models models_;
  Resting<Watched> resting_;
  std::set<std::string> hidden_;  // types inside of models that cannot be seen
  std::size_t watched_ = 0;
  std::atomic<bool> done_{false};
};

}  // namespace torchtap::tools::preload
