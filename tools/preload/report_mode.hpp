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
#include <utility>
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
#include "resting.hpp"
#include "view_mode.hpp"

namespace torchtap::tools::preload {

/// Measures the cost of the modules of the program's models (`torchtap preload --report`).
///
/// A repeat is a forward pass with the backwards of its results, which may come in a pass of other models. It
/// begins with the first call of a module that can be seen, or of a method of TorchScript, with whose return
/// it ends. The next one begins with the next call after a backward, or after the program set a model to
/// train or eval or asked it for its parameters, or where `Pass` finds that the first module begins again;
/// the operations between two calls are followed for that only while it may be needed, which is not in a
/// training loop. One thread is measured at a time; another has its turn between the passes of the first.
class ReportMode final : public Mode {
 public:
  explicit ReportMode(const Config& config);

  void found_root(const torch::nn::Module& root) override;
  void called(torch::nn::Module& module) override;
  void backward(bool begins) override;
  bool hides_backward() const noexcept override { return false; }
  bool waits_for_script() const noexcept override { return !done_; }
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original) override;
  void finish() noexcept override;

  /// A child measures its own calls, of the models that the parent knew.
  ReportMode* for_child() override;

 private:
  /// What is measured of a model; it goes on with another object when its model is gone.
  struct Measured {
    Measured(const std::vector<model::ModuleRef>& modules, views::report::ReportOptions options)
        : kind(kind_of(modules)), report(modules, std::move(options)) {}
    ModelKind kind;
    views::report::Report report;
    std::optional<std::size_t> number;          // among all of the process that ran
    std::atomic<std::uint64_t> unpublished{0};  // repeats
  };
  struct Model : FoundModel {
    std::unique_ptr<Measured> measured;
    std::optional<views::report::Repeat> recording;
    const void* first = nullptr;  // the module, or object, of which the recording's first call was
    hooks::Handle first_hook;     // before the report's hooks, so that the repeat ends before the call counts
    bool running = false;         // a repeat
    bool over = false;            // another pass began; a backward may still reach what this repeat made
  };

  void measure(Model& model, const std::vector<model::ModuleRef>& modules);
  void join(Model& model, const void* first, const model::ModuleRef* module,
            const torch::jit::Method* method = nullptr);
  bool rests() const;
  void note_event();
  void begin_step(Model& model, const void* first);
  void begin_pass();
  void end_pass();
  void begin_repeat(Model& model, const void* first, const model::ModuleRef* module,
                    const torch::jit::Method* method = nullptr);
  void end_repeat(Model& model) noexcept;
  void next_step(Model& model, const void* first);
  void end_repeats() noexcept;
  void stop() noexcept;
  void called_first(Model& model, const std::vector<at::Tensor>& inputs);
  void set_phase(views::report::Phase phase);
  bool bury(Model& model);
  bool mine() const noexcept { return thread_ == std::this_thread::get_id(); }
  void end_script();
  static void publish(Measured& measured);

  Models models_;
  Resting<Measured> resting_;
  std::size_t ran_ = 0;  // models, of which one that goes on with another's report is none
  std::atomic<bool> done_{false}, other_thread_waits_{false};

  // The step: repeats of all models that run in it, in one thread.
  std::thread::id thread_;
  bool open_ = false;
  bool passed_ = false;       // its pass ended, as far as can be seen
  bool in_backward_ = false;  // the engine's run is not over
  std::atomic<int> running_nodes_{0};
  std::int64_t events_ = 0;             // calls and nodes
  const void* first_called_ = nullptr;  // a module, or an object of TorchScript
  std::shared_ptr<Model> first_model_;
  Pass pass_;
  bool gradients_ = false;  // are enabled in it
  std::chrono::steady_clock::time_point last_event_;
  bool follows_ = true;  // operations are followed to find the end of the pass
  std::int64_t first_calls_ = 0;
  std::int64_t calls_before_backward_ = 0;  // of the first module; 0 until a backward ended a pass
  std::unique_ptr<operations::Scope> scope_;
  std::optional<views::watch::ThreadCallback> callback_;
  std::vector<Model*> step_;  // in the order of their recordings
};

}  // namespace torchtap::tools::preload
