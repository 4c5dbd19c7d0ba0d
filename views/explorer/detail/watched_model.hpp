#pragma once

// Watches one model of an explorer: records its calls while the model runs.

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/process.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/views/explorer/detail/live_run.hpp>
#include <torchtap/views/explorer/detail/parameter_updates.hpp>
#include <torchtap/views/explorer/detail/recording_pace.hpp>
#include <torchtap/views/explorer/detail/watched_model_forward.hpp>
#include <torchtap/views/explorer/options.hpp>

namespace torchtap::views::explorer::detail {

/// Called in the thread of a call of a module, before it; see `WatchedModel::watch`.
using BeforeCall = std::function<void(const torch::nn::Module& module, const hooks::Event& call)>;

/// The number of models that explorers watch.
extern std::atomic<int> watching;

/// One model.
class WatchedModel final : public watch::CallListener, public std::enable_shared_from_this<WatchedModel> {
 public:
  /// Among the models of an explorer.
  struct Place {
    std::int64_t number = 1;
    std::shared_ptr<const std::atomic<int>> models;  // how many there are; null for one
  };

  WatchedModel(ExplorerOptions options, Place place);
  ~WatchedModel() override;
  WatchedModel(const WatchedModel&) = delete;
  WatchedModel& operator=(const WatchedModel&) = delete;

  /// `modules` begins with the root. With `before_call` the calls of the root need not be seen, as in a
  /// program that is not rebuilt: a forward begins with the first call of a module in a thread, and ends when
  /// `end_forward` says so, which `before_call` may call.
  void watch(const std::vector<model::ModuleRef>& modules, const selectors::Selector& selector,
             BeforeCall before_call = {});
  /// Whether it watches this root, and is not closed.
  bool watches(const model::ModuleRef& root) const;
  /// Whether the model has been destroyed.
  bool is_gone() const;
  bool closed() const noexcept { return closed_; }
  /// Takes the hooks off; the run is finished.
  TORCHTAP_API void close() noexcept;
  /// Closes the run of a destroyed model: keeps no parameters of it.
  TORCHTAP_API void let_go() noexcept;
  /// In a forked child: records nothing from now on.
  void leave_to_parent() noexcept;

  /// The forward of a root that cannot be seen is over, in this thread. If it was not a `whole` one, it is
  /// forgotten, and the next one is looked at in its place.
  TORCHTAP_API void end_forward(bool whole = true) noexcept;
  /// The forward is over because a function of a backward begins in this thread. LibTorch restores the
  /// thread's state after that, so the scope of the forward is left open, and closed by the next forward or
  /// `end_forward`.
  TORCHTAP_API void backward_follows() noexcept;

  /// Throws as `Explorer::step` does.
  void check_step(std::int64_t step) const;
  void set_step(std::int64_t step);
  TORCHTAP_API std::int64_t step() const;
  void scalar(const std::string& name, double value);
  /// Whether the current step is recorded.
  bool recording() const noexcept { return recording_; }
  std::vector<std::string> errors() const;

  void attach(const at::Tensor& tensor, const char* name);
  /// A gradient arrived.
  void gradient(GradientTargets& targets, const at::Tensor& gradient);
  /// The gradients of the current step began to arrive.
  void backward_begins();

  const std::shared_ptr<LiveRun>& run() const noexcept { return run_; }
  bool hides_root() const noexcept { return hides_root_; }
  const ExplorerOptions options;

 private:
  /// A parameter, with the module that has it.
  struct Held {
    at::Tensor tensor;
    std::int32_t module, position;
    std::string name;
  };

  // watched_model.cpp
  void attach_all(const std::vector<model::ModuleRef>& modules, const selectors::Selector& selector);
  void describe(const model::ModuleRef& module, std::int32_t index);
  void tell_before_calls(const model::ModuleRef& module);
  bool open_step(bool trains, bool learns);
  void end_backward();
  void record_parameters(bool gradients);
  void write_pace();
  void compare_parameters() noexcept;
  void failed(const char* what) noexcept;
  void tell_file_failure() noexcept;
  template <class Function>
  void guarded(Function&& function) noexcept {
    if (!made_here_) return;  // in a forked child, which records nothing
    try {
      function();
    } catch (const c10::Error& error) {
      failed(error.what_without_backtrace());
    } catch (const std::exception& error) {
      failed(error.what());
    }
    tell_file_failure();
  }

  // thread_forward.cpp
  Forward& forward_here();
  void forget_forward() noexcept;

  // watched_model_hidden_root.cpp
  void begin_hidden_root(Forward& forward, const hooks::Event& event);
  void open_missed(Forward& forward, std::int32_t module, int depth, const hooks::Event& event);
  void close_missed(Forward& forward, std::int32_t next);
  void finish_hidden_root(Forward& forward);
  void close_scope() noexcept;

  // watched_model_forward.cpp
  std::unique_ptr<operations::Scope> trace(const std::shared_ptr<Flow>& flow) const;
  void call_begins(std::size_t module, int depth, hooks::Event& event) override;
  void call_ends(std::size_t module, hooks::Event& event) override;
  void begin(Forward& forward);
  void end(Forward& forward, const std::vector<at::Tensor>& outputs);
  void abandon(Forward& forward);
  void open_call(Forward& forward, Forward::OpenCall& running, const std::vector<at::Tensor>& inputs);
  void close_call(Forward& forward, const std::vector<at::Tensor>& outputs);
  void drop_ended(Forward& forward, std::int32_t module, int depth);
  void values(Forward& forward, std::int32_t call, What what, const std::vector<at::Tensor>& tensors);
  void value(Forward& forward, const SeriesKey& key, const at::Tensor& tensor);
  void want_gradient(Forward& forward, const SeriesKey& key, const at::Tensor& tensor);
  std::int32_t attached(std::int32_t around, const std::string& name, const char* type);
  std::int32_t operation(Mode mode, std::int32_t caller, const std::string& name, std::int32_t nth,
                         const at::Tensor& result);
  std::shared_ptr<GradientTargets> listen(const at::Tensor& tensor, std::int64_t step,
                                          Forward* forward = nullptr);
  void notice_backward(const std::vector<at::Tensor>& outputs, std::int64_t step);
  bool went_idle();

  const base::MadeHere made_here_;
  const std::uint64_t serial_;
  const std::shared_ptr<LiveRun> run_;
  bool closed_ = false;
  BeforeCall before_call_;
  bool hides_root_ = false;                       // its calls cannot be seen
  std::atomic<bool> joined_{false};               // a forward of such a root was there from its beginning
  std::vector<bool> hooked_;                      // by module
  const void* root_ = nullptr;                    // a module, or an object of TorchScript
  std::weak_ptr<const torch::nn::Module> owner_;  // of the root
  bool owned_ = false;                            // by a shared pointer, when it was watched
  std::string method_;
  bool scripted_ = false;
  bool root_counts_ = false;  // in watch::calls_here
  std::function<bool()> is_training_;
  watch::Nesting nesting_;
  std::vector<Held> held_;
  Updates updates_;
  std::vector<at::Tensor> constants_;  // parameters and buffers
  std::vector<hooks::Handle> handles_;

  mutable std::mutex mutex_;  // of the members below
  Pace pace_;
  std::int64_t step_ = 0, timed_step_ = 0;
  Pace::Clock::time_point timed_ = Pace::Clock::now();
  bool any_forward_ = false, any_backward_ = false, user_steps_ = false;
  bool idle_ = false;       // no backward belongs to the forwards before this step
  bool went_idle_ = false;  // nor to one since
  std::vector<std::weak_ptr<GradientTargets>> unanswered_;                 // before the first backward
  std::int64_t parameters_at_ = std::numeric_limits<std::int64_t>::min();  // the step that has them
  bool backward_seen_ = false, callback_queued_ = false, parameters_read_ = false;
  std::atomic<bool> recording_{false};
  int wanted_traces_[modes] = {1, 1};      // how many more forwards may be looked at
  std::uint64_t missing_[modes] = {0, 0};  // calls that ran and were not looked at
  std::map<std::tuple<std::int32_t, std::string, std::string>, std::int32_t> attached_;  // around, type, name
  std::vector<std::string> errors_;
};

}  // namespace torchtap::views::explorer::detail
