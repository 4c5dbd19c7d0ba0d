#pragma once

#include <ATen/core/ivalue.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <torchtap/model/module_ref.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/explorer/detail/group.hpp>
#include <torchtap/views/explorer/explorer.hpp>

#include "config.hpp"
#include "mode.hpp"
#include "pass.hpp"
#include "report.hpp"

namespace torchtap::preload {

/// Shows the program's models as a live page (`torchtap preload --explore`).
///
/// Each model is a run of an explorer. The forward of a C++ model is compiled into the program: it begins, in
/// each thread, with the first call of a module that can be seen, and ends when a backward begins, when the
/// program sets a model to train or eval or asks it for its parameters, or where `Pass` finds that the first
/// module begins again. For that the operations between two calls are followed, but not in a training loop.
/// Calls of TorchScript are seen themselves.
class Explore final : public Mode {
 public:
  explicit Explore(const Config& config);
  Explore(const Explore&) = delete;
  Explore& operator=(const Explore&) = delete;

  void found_root(const torch::nn::Module& root) override;
  void called(torch::nn::Module& module) override;
  void backward(bool begins) override;
  bool hides_backward() const noexcept override { return true; }
  bool waits_for_script() const noexcept override { return !done_; }
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original) override;
  bool recording() const noexcept override { return ran_ && !done_; }
  void snapshot() noexcept override {}  // files are written as it goes
  void finish() noexcept override;
  void note(const std::string& text) override;

  void lock() override { mutex_.lock(); }
  void unlock() override { mutex_.unlock(); }
  /// A child that runs a model shows it on a page of its own, and saves it in a directory of its own.
  Explore* for_child() override;

 private:
  /// A model of the program.
  struct Model {
    std::string type;
    const torch::nn::Module* address = nullptr;   // null for TorchScript
    std::weak_ptr<const torch::nn::Module> life;  // expires with it
    const c10::ivalue::Object* object = nullptr;  // of TorchScript
    std::string method;
    std::vector<model::ModuleRef> modules;
    Pass::Modules visible;  // whose calls can be seen
    Pass::Modules called;   // of these, in any pass
    /// Of the first module, in evaluation and in training mode; 0 until a backward ended a pass.
    std::array<std::int64_t, 2> calls_before_backward{};
    std::shared_ptr<views::explorer::detail::Session> session;  // once it ran
  };
  /// A forward, in one thread.
  struct Running {
    Model* model = nullptr;
    std::shared_ptr<views::explorer::detail::Session> session;
    const torch::nn::Module* first = nullptr;
    std::int64_t first_calls = 1;
    bool trains = false;
    std::shared_ptr<Pass> pass = std::make_shared<Pass>();
    std::unique_ptr<operations::Scope> scope;  // while operations are followed
  };
  struct Thread;
  struct ThreadEnd;

  Thread& thread_here();
  Model* add(std::unique_ptr<Model> found);
  Model* model_of(const torch::jit::Method& method);
  void begin(Model& model);
  bool open_explorer();
  std::string directory();
  void before(Model& model, const torch::nn::Module& module, const hooks::Event& call);
  static bool begins_again(Running& running, const torch::nn::Module& module,
                           const std::vector<at::Tensor>& inputs);
  static void open(Thread& thread, Model& model, const torch::nn::Module& first,
                   const std::vector<at::Tensor>& inputs);
  static void close(Thread& thread, std::size_t from, bool whole = true);
  static void learn(const Running& running);
  static void end_in_backward(Thread& thread);
  void let_go_of_the_dead();
  void add_notes();
  void tell(bool ended) { preload::tell(report_, config_.reports, ended); }

  std::recursive_mutex mutex_;
  const Config config_;
  const std::uint64_t serial_;  // of the process; its hooks are left behind in a child
  std::vector<std::unique_ptr<Model>> models_;
  std::unordered_map<const torch::nn::Module*, Model*> models_by_module_;
  std::unordered_set<const c10::ivalue::Object*> left_out_;
  std::unordered_map<std::type_index, std::string> strangers_;  // types of modules that ran in no known model
  std::set<std::string> hidden_;                                // types inside of models that cannot be seen
  std::unordered_set<Thread*> threads_;
  std::unique_ptr<views::explorer::Explorer> explorer_;
  std::atomic<bool> ran_{false}, done_{false};
  Report report_;
};

}  // namespace torchtap::preload
