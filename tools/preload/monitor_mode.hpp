#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/monitor/monitor.hpp>

#include "config.hpp"
#include "models.hpp"
#include "process_report.hpp"
#include "view_mode.hpp"

namespace torchtap::tools::preload {

/// Watches the program's models for alarms (`torchtap preload --monitor`), or learns references of them
/// (`--learn`).
///
/// Each model has a monitor, from its first call on until the program ends. When it is destroyed, the next
/// model of its paths and types goes on with that. After a crash, an abort or an uncaught exception the rings
/// of the last inputs stay, from which the launcher makes incidents.
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

  /// A child watches the models that it runs itself, with its own folders.
  MonitorMode* for_child() override;

 private:
  /// A monitor, which goes on with another object when its model is gone.
  struct Watched {
    views::monitor::Monitor monitor;
    std::string name, reference;                            // that it is compared with
    std::size_t place = 0;                                  // of its files
    std::vector<std::pair<std::string, std::string>> kind;  // paths and types of the modules
  };
  struct Model : FoundModel {
    std::unique_ptr<Watched> watched;
  };
  /// The references that `--learn` wrote: of the first model, and beside it of the others.
  struct Learned {
    std::string place;
    std::set<std::pair<std::string, std::string>> modules;  // paths and types
  };

  void begin(Model& model, const std::vector<model::ModuleRef>& modules);
  bool follow(Model& model, const std::vector<model::ModuleRef>& modules);
  std::string free_name(std::string name) const;
  std::vector<const Watched*> all() const;
  std::string reference_for(const std::vector<model::ModuleRef>& modules);
  std::string beside(const std::string& path, std::size_t number) const;
  void end(std::unique_ptr<Watched> watched);
  bool bury(Model& model);
  void add_notes();

  Models models_;
  std::deque<std::unique_ptr<Watched>> resting_;  // their models are gone; the last that went last
  std::optional<std::vector<Learned>> learned_;
  std::set<std::string> hidden_;  // types inside of models that cannot be seen
  std::size_t watched_ = 0;
  std::atomic<bool> done_{false};
  std::atomic<std::int64_t> alarms_{0};  // that were raised
};

}  // namespace torchtap::tools::preload
