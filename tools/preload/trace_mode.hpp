#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/trace/tracer.hpp>

#include "config.hpp"
#include "hidden_pass.hpp"
#include "models.hpp"
#include "process_report.hpp"
#include "view_mode.hpp"

namespace torchtap::tools::preload {

/// Logs the first forward pass of a process (`torchtap preload --trace`).
///
/// For TorchScript that is the first call of a method from C++. The forward of a C++ model is compiled into
/// the program, so where it begins and ends has to be guessed. It begins when the first of the modules is
/// called that can be seen, and ends when
///
/// - a backward begins;
/// - the program does to the model what is done between passes (`train`, `eval`, `parameters`);
/// - the module that was called first is called again with tensors that the pass did not compute (see
/// `Pass`);
/// - `kMost` operations ran, or the process ends.
class TraceMode final : public Mode {
 public:
  explicit TraceMode(const Config& config);

  void found_root(const torch::nn::Module& root) override;
  void called(torch::nn::Module& module) override;
  void backward(bool begins) override;
  bool hides_backward() const noexcept override { return true; }
  bool waits_for_script() const noexcept override { return state_ == State::waiting; }
  /// Logs the method if it is the first.
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original) override;
  void finish() noexcept override;

  /// A child logs its own pass, unless one had begun.
  TraceMode* for_child() override;

 private:
  enum class State { waiting, logging, done };
  static constexpr std::int64_t kMost = 100000;

  views::trace::TraceOptions options() const;
  void begin(torch::nn::Module& module);
  void called_first(const std::vector<at::Tensor>& inputs);
  std::shared_ptr<views::trace::Tracer> begin_script(const torch::jit::Method& method,
                                                     const std::vector<c10::IValue>& arguments);
  void end_script(views::trace::Tracer& tracer, const std::string& error);
  void end();
  views::trace::History finished();
  void save(const views::trace::History& history);

  std::atomic<State> state_{State::waiting};
  std::shared_ptr<views::trace::Tracer> tracer_;
  Models models_;
  std::shared_ptr<FoundModel> model_;  // the largest

  // The pass that is being logged.
  std::thread::id thread_;
  hooks::Handle first_;  // on the module that was called first
  bool has_inputs_ = false;
  Pass pass_;
  std::unique_ptr<operations::Scope> scope_;
};

}  // namespace torchtap::tools::preload
