#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
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
/// Each model has a monitor, from its first call on until it is destroyed or the program ends. After a crash,
/// an abort or an uncaught exception the rings of the last inputs stay, from which the launcher makes
/// incidents.
class MonitorMode final : public Mode {
 public:
  explicit MonitorMode(const Config& config);
  MonitorMode(const MonitorMode&) = delete;
  MonitorMode& operator=(const MonitorMode&) = delete;

  void found_root(const torch::nn::Module& root) override;
  void called(torch::nn::Module& module) override;
  void backward(bool /*begins*/) override {}
  bool hides_backward() const noexcept override { return false; }
  bool waits_for_script() const noexcept override { return !done_; }
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original) override;
  bool recording() const noexcept override { return ran_ && !done_; }
  void snapshot() noexcept override {}  // what is found is written at once
  void finish() noexcept override;
  void note(const std::string& text) override;

  void lock() override { mutex_.lock(); }
  void unlock() override { mutex_.unlock(); }
  /// A child watches the models that it runs itself, with its own folders.
  MonitorMode* for_child() override;

 private:
  struct Model : FoundModel {
    std::optional<views::monitor::Monitor> monitor;
    std::string reference;  // that it is compared with
  };
  /// The references that `--learn` wrote: of the first model, and beside it of the others.
  struct Learned {
    std::string place;
    std::set<std::pair<std::string, std::string>> modules;  // paths and types
  };

  void begin(Model& model, const std::vector<model::ModuleRef>& modules);
  std::string reference_for(const std::vector<model::ModuleRef>& modules);
  std::string beside(const std::string& path, std::size_t number) const;
  void end(Model& model);
  void let_go_of_the_dead();
  void add_notes();
  void tell(bool ended) { preload::tell(report_, config_.reports, ended); }

  std::recursive_mutex mutex_;
  const Config config_;
  Models models_;
  std::map<std::string, std::size_t> names_;  // of models, and how many have them
  std::optional<std::vector<Learned>> learned_;
  std::set<std::string> hidden_;  // types inside of models that cannot be seen
  std::size_t watched_ = 0;
  std::atomic<bool> ran_{false}, done_{false};
  std::atomic<std::int64_t> alarms_{0};  // that were raised
  Report report_;
};

}  // namespace torchtap::tools::preload
