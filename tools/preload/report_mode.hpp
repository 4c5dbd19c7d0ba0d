#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/watch/thread_callback.hpp>

#include "config.hpp"
#include "hidden_pass.hpp"
#include "models.hpp"
#include "process_report.hpp"
#include "view_mode.hpp"

namespace torchtap::tools::preload {

/// Measures the cost of the modules of the program's models (`torchtap preload --report`).
///
/// A repeat is a forward pass with the backwards of its results, which may come in a pass of other models. It
/// begins with the first call of a module that can be seen, or of a method of TorchScript. The next one
/// begins with the next call after a backward, or after the program set a model to train or eval or asked it
/// for its parameters, or where `Pass` finds that the first module begins again; the operations between two
/// calls are followed for that only while it may be needed, which is not in a training loop. One thread is
/// measured at a time; another has its turn between the passes of the first.
class ReportMode final : public Mode {
 public:
  explicit ReportMode(const Config& config);
  ReportMode(const ReportMode&) = delete;
  ReportMode& operator=(const ReportMode&) = delete;

  void found_root(const torch::nn::Module& root) override;
  void called(torch::nn::Module& module) override;
  void backward(bool begins) override;
  bool hides_backward() const noexcept override { return false; }
  bool waits_for_script() const noexcept override { return !done_; }
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original) override;
  bool recording() const noexcept override { return ran_ && !done_; }
  void snapshot() noexcept override;
  void finish() noexcept override;
  void note(const std::string& text) override;

  void lock() override { mutex_.lock(); }
  void unlock() override { mutex_.unlock(); }
  /// A child measures its own calls, of the models that the parent knew.
  ReportMode* for_child() override;

 private:
  struct Model : FoundModel {
    std::unique_ptr<views::report::Report> report;
    std::optional<views::report::Repeat> recording;
    const void* first = nullptr;  // the module, or object, of which the recording's first call was
    hooks::Handle first_hook;     // before the report's hooks, so that the repeat ends before the call counts
    bool running = false;         // a repeat
    bool over = false;            // another pass began; a backward may still reach what this repeat made
    views::report::Measurements last;  // when the model is gone
  };

  void join(Model& model, const void* first, const model::ModuleRef* module);
  bool rests() const;
  void note_event();
  void begin_step(Model& model, const void* first);
  void begin_pass();
  void end_pass();
  void begin_repeat(Model& model, const void* first, const model::ModuleRef* module);
  void end_repeat(Model& model) noexcept;
  void next_step(Model& model, const void* first);
  void end_repeats() noexcept;
  void stop() noexcept;
  void called_first(Model& model, const std::vector<at::Tensor>& inputs);
  void set_phase(views::report::Phase phase);
  void let_go_of_the_dead();
  bool mine() const noexcept { return thread_ == std::this_thread::get_id(); }
  void save();
  std::string file_of(std::size_t number) const;
  void tell(bool ended);

  std::recursive_mutex mutex_;
  const Config config_;
  const std::uint64_t serial_;  // of the process; its hooks are left behind in a child
  Models models_;
  std::vector<Model*> order_;    // that ran, the first first
  std::set<std::string> files_;  // that were saved
  std::atomic<bool> ran_{false}, done_{false}, save_wanted_{false}, other_thread_waits_{false};

  // The step: repeats of all models that run in it, in one thread.
  std::thread::id thread_;
  bool open_ = false;
  bool passed_ = false;       // its pass ended, as far as can be seen
  bool in_backward_ = false;  // the engine's run is not over
  std::atomic<int> running_nodes_{0};
  std::int64_t events_ = 0, events_seen_ = 0;  // calls and nodes; those at the last snapshot
  const void* first_called_ = nullptr;         // a module, or an object of TorchScript
  Model* first_model_ = nullptr;
  Pass pass_;
  bool gradients_ = false;  // are enabled in it
  std::chrono::steady_clock::time_point last_event_;
  bool follows_ = true;  // operations are followed to find the end of the pass
  std::int64_t first_calls_ = 0;
  std::int64_t calls_before_backward_ = 0;  // of the first module; 0 until a backward ended a pass
  std::unique_ptr<operations::Scope> scope_;
  std::optional<views::watch::ThreadCallback> callback_;
  std::vector<Model*> step_;  // in the order of their recordings
  Report report_;
};

}  // namespace torchtap::tools::preload
