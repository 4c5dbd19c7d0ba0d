#pragma once

// What an explorer does while its model runs.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/views/explorer/detail/forward.hpp>
#include <torchtap/views/explorer/detail/live_run.hpp>
#include <torchtap/views/explorer/detail/pace.hpp>
#include <torchtap/views/explorer/detail/process.hpp>
#include <torchtap/views/explorer/detail/updates.hpp>
#include <torchtap/views/explorer/options.hpp>

namespace torchtap::views::explorer::detail {

class Session final : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(Options options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// `modules` begins with the root.
  void watch(const std::vector<model::ModuleRef>& modules, const selectors::Selector& selector);
  /// Takes the hooks off; the run is finished.
  void close() noexcept;

  void set_step(std::int64_t step);
  std::int64_t step() const;
  void scalar(const std::string& name, double value);
  /// Whether the current step is recorded.
  bool recording() const noexcept { return recording_; }
  std::vector<std::string> errors() const;

  void attach(const at::Tensor& tensor, const char* name);
  /// A gradient arrived.
  void gradient(const GradientTargets& targets, const at::Tensor& gradient);
  /// The gradients of the current step began to arrive.
  void backward_begins();

  const std::shared_ptr<LiveRun>& run() const noexcept { return run_; }
  const Options options;

 private:
  /// A parameter, with the module that has it.
  struct Held {
    at::Tensor tensor;
    std::int32_t module, position;
    std::string name;
  };

  // session.cpp
  void attach_all(const std::vector<model::ModuleRef>& modules, const selectors::Selector& selector);
  void describe(const model::ModuleRef& module);
  void attach_to(const model::ModuleRef& module, std::int32_t index);
  bool open_step(bool trains);
  void end_backward();
  void record_parameters(bool gradients);
  void write_pace();
  void compare_parameters() noexcept;
  void failed(const char* what) noexcept;
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
  }

  // forward.cpp
  Forward& forward_here();
  void forget_forward() noexcept;
  std::unique_ptr<operations::Scope> trace(const std::shared_ptr<Flow>& flow) const;
  void enter(std::int32_t module, int depth, hooks::Event& event);
  void leave(std::int32_t module, hooks::Event& event);
  void begin(Forward& forward);
  void end(Forward& forward, const std::vector<at::Tensor>& outputs);
  void abandon(Forward& forward);
  void open_call(Forward& forward, Forward::OpenCall& running, const std::vector<at::Tensor>& inputs);
  void close_call(Forward& forward, const std::vector<at::Tensor>& outputs);
  void drop_ended(Forward& forward, std::int32_t module, int depth);
  void values(Forward& forward, std::int32_t call, What what, const std::vector<at::Tensor>& tensors);
  void value(Forward& forward, const SeriesKey& key, const at::Tensor& tensor);
  void want_gradient(Forward& forward, const SeriesKey& key, const at::Tensor& tensor);
  std::int32_t attached(std::int32_t around, const char* name);
  void notice_backward(const std::vector<at::Tensor>& outputs);

  const MadeHere made_here_;
  const std::uint64_t serial_;
  const std::shared_ptr<LiveRun> run_;
  bool closed_ = false;
  bool scripted_ = false;
  bool root_counts_ = false;  // in hooks::detail::call_depth
  std::function<bool()> is_training_;
  std::vector<std::vector<std::int32_t>> around_;  // of each module, those above it
  std::vector<Held> held_;
  Updates updates_;
  std::vector<at::Tensor> constants_;  // parameters and buffers
  std::vector<hooks::Handle> handles_;

  mutable std::mutex mutex_;  // of what is below
  Pace pace_;
  std::int64_t step_ = 0, timed_step_ = 0;
  Pace::Clock::time_point timed_ = Pace::Clock::now();
  bool any_forward_ = false, any_backward_ = false, user_steps_ = false;
  bool backward_seen_ = false, callback_queued_ = false, parameters_read_ = false;
  std::atomic<bool> recording_{false};
  int wanted_traces_[modes] = {1, 1};      // how many more forwards may be looked at
  std::uint64_t missing_[modes] = {0, 0};  // calls that ran and were not looked at
  std::map<std::pair<std::int32_t, std::string>, std::int32_t> attached_;
  std::vector<std::string> errors_;
};

}  // namespace torchtap::views::explorer::detail
