#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include <torchtap/model/module_ref.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/explorer/explorer.hpp>
#include <torchtap/views/explorer/extend/watched_models.hpp>

#include "config.hpp"
#include "hidden_pass.hpp"
#include "models.hpp"
#include "process_report.hpp"
#include "view_mode.hpp"

namespace torchtap::tools::preload {

/// Shows the program's models as a live page (`torchtap preload --explore`).
///
/// Each model is a run of an explorer. The forward of a C++ model is compiled into the program: it begins, in
/// each thread, with the first call of a module that can be seen, and ends when a backward begins, when the
/// program sets a model to train or eval or asks it for its parameters, or where `Pass` finds that the first
/// module begins again. For that the operations between two calls are followed, but not in a training loop.
/// Calls of TorchScript are seen themselves.
class ExploreMode final : public Mode {
 public:
  explicit ExploreMode(const Config& config);

  void found_root(const torch::nn::Module& root) override;
  void called(torch::nn::Module& module) override;
  void backward(bool begins) override;
  bool hides_backward() const noexcept override { return true; }
  bool waits_for_script() const noexcept override { return !done_; }
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original) override;
  void finish() noexcept override;

  /// A child that runs a model shows it on its own page, and saves it in its own directory.
  ExploreMode* for_child() override;

 private:
  struct Model : FoundModel {
    std::shared_ptr<views::explorer::extend::WatchedModel> watched;  // once it ran
  };
  /// A forward, in one thread.
  struct Running {
    std::shared_ptr<Model> model;  // which may be gone while another thread runs it
    std::shared_ptr<views::explorer::extend::WatchedModel> watched;
    const torch::nn::Module* first = nullptr;
    std::int64_t first_calls = 1;
    bool trains = false;
    std::shared_ptr<Pass> pass = std::make_shared<Pass>();
    std::unique_ptr<operations::Scope> scope;  // while operations are followed
  };
  struct Thread;
  struct ThreadEnd;

  Thread& thread_here();
  void begin(Model& model);
  void open_explorer();
  void before(Model& model, const torch::nn::Module& module, const hooks::Event& call);
  static bool begins_again(Running& running, const torch::nn::Module& module,
                           const std::vector<at::Tensor>& inputs);
  static void open(Thread& thread, Model& model, const torch::nn::Module& first,
                   const std::vector<at::Tensor>& inputs);
  static void close(Thread& thread, std::size_t from, bool whole = true);
  static void learn(const Running& running);
  static void end_in_backward(Thread& thread);
  bool bury(Model& model);
  void end(Model& model);
  void add_notes();

  Models models_;
  std::set<std::string> hidden_;  // types inside of models that cannot be seen
  std::unordered_set<Thread*> threads_;
  std::unique_ptr<views::explorer::Explorer> explorer_;
  std::atomic<bool> done_{false};
};

}  // namespace torchtap::tools::preload
