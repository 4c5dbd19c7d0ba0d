#pragma once

// A model that a monitor watches.

#include <ATen/core/ivalue.h>

#include <atomic>
#include <condition_variable>
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

#include <torchtap/base/api.hpp>
#include <torchtap/base/process.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/views/monitor/detail/chosen.hpp>
#include <torchtap/views/monitor/detail/flight_recorder.hpp>
#include <torchtap/views/monitor/detail/judge.hpp>
#include <torchtap/views/monitor/detail/open_forwards.hpp>
#include <torchtap/views/monitor/detail/parameter_steps.hpp>
#include <torchtap/views/monitor/detail/sampler.hpp>
#include <torchtap/views/monitor/detail/told.hpp>
#include <torchtap/views/monitor/options.hpp>

namespace torchtap::views::monitor::detail {

/// A window that ends by time has at least so many rows.
constexpr std::int64_t least_rows_by_time = 64;

/// Another process that judges.
struct Elsewhere {
  /// Called in forwards, by one thread or several, and when the watcher is closed.
  std::function<void(const Told&)> tell;
  char* ring = nullptr;  // `FlightRecorder::room_for` bytes that live longer; null: there is no ring
};

/// The work of a monitor in the program: hooks of the root begin and end forwards (watcher_forward.cpp);
/// recorders count what passes in sampled ones; a judge is told of windows and of forwards that went wrong
/// (watcher_work.cpp), in the monitor's thread or, without one, in the forward; or another process is.
class TORCHTAP_API Watcher : public Subject, public std::enable_shared_from_this<Watcher> {
 public:
  /// `modules` begins with the root. Throws as `Monitor`'s constructor.
  Watcher(std::vector<model::ModuleRef> modules, const std::string& reference, MonitorOptions options);
  /// Nothing is judged or written here. Throws `c10::ValueError` as the other one does.
  Watcher(std::vector<model::ModuleRef> modules, MonitorOptions options, Elsewhere elsewhere);
  ~Watcher() override;
  /// Attaches, and starts the thread. Throws as `hooks::attach` does; nothing is attached then.
  void start();
  /// Detaches, judges what is left, and ends the thread.
  void close() noexcept;

  void on_alarm(std::function<void(const Alarm&)> callback) { judge_->on_alarm(std::move(callback)); }
  std::vector<Alarm> alarms() const { return made_here_ ? judge_->alarms() : std::vector<Alarm>(); }
  std::string metrics() const { return made_here_ ? judge_->metrics() : std::string(); }
  std::string capture(const std::string& reason);
  void request_capture() noexcept { capture_requested_.store(true, std::memory_order_relaxed); }
  void flush();
  /// Goes on with another object of the model. Throws as `Monitor::follow`.
  void follow(std::vector<model::ModuleRef> modules);
  /// A thread ended in this forward.
  void lost(const OpenForward& forward) noexcept;

  /// The first is told, all are counted, by whoever judges.
  void count_error(const char* what) noexcept;
  /// As a judge knows the model.
  JudgedModel judged() const;
  /// The window until now, which goes on.
  Window unfinished();

  Counts counts() const override;
  std::vector<KeptForward> forwards() const override;
  void note_window(const std::string& text) override;
  std::vector<model::ModuleRef> living(std::vector<std::shared_ptr<const void>>& keep) const override;

 private:
  /// A subrecorder, and the kind of its tensors.
  struct Watched {
    recorders::Subrecorder data;
    rules::Tensor tensor;
    std::size_t module;  // in `modules_`
    std::int64_t calls = 0;
  };
  /// What waits to be judged.
  struct Due {
    Told told;  // windows were taken in forwards, while the monitor's thread was busy
    bool window = false;
    std::uint64_t ticket = 0;
  };

  /// Whether and how a module's life ends. A module that no shared pointer owns, such as a plain variable,
  /// may end at any time: it is looked at in its own calls only.
  struct Life {
    std::weak_ptr<const torch::nn::Module> shared;
    bool expires = false;  // when its last owner lets go
    bool unknown = false;  // nobody owns it, and it has parameters or buffers of its own
    std::optional<c10::weak_intrusive_ptr<c10::ivalue::Object>> script;  // of a module of TorchScript
  };

  // watcher.cpp
  void check_options() const;
  void open_ring();
  bool is_training(std::size_t called) const;
  void not_counted(const std::string& path);
  void note_lives();
  void attach_all();
  void add_recorder(recorders::RecorderKind kind, const std::vector<std::size_t>& modules,
                    rules::Tensor tensor);
  void find_failed_here();
  /// Counts exceptions, which the model must not see.
  template <class Function>
  void guarded(Function&& function) noexcept {
    count_exceptions(*this, std::forward<Function>(function));
  }

  // watcher_forward.cpp
  void begin(const hooks::Event& event);
  void end(const hooks::Event& event);
  void begin_hidden(std::size_t top, const hooks::Event& event);
  void end_hidden(const hooks::Event& event);
  void open(int depth, std::size_t module, const hooks::Event& event);
  void finish(OpenForward& forward, const hooks::Event& event);
  void failed(std::int64_t number, bool thread_ends = false);
  bool room_for_windows() const;
  bool writes_incidents() const noexcept { return judge_ == nullptr || !judge_->incidents_folder().empty(); }
  bool copies_parameters();
  void ask(Due due);

  // watcher_work.cpp
  bool nothing_is_left() const;
  void work();
  void serve(bool wait);
  Told complete(Due due);
  void tell_elsewhere(Due due);
  std::string digest();
  Window take();
  Window so_far(bool takes);

  const MonitorOptions options_;
  const base::MadeHere made_here_;
  std::shared_ptr<Watcher> kept_;  // itself, in a child that must not destroy it
  const std::uint64_t serial_;
  std::vector<model::ModuleRef> modules_;
  const Chosen chosen_;
  const Elsewhere elsewhere_;
  std::vector<Life> lives_;  // of the modules

  std::unique_ptr<FlightRecorder> ring_;
  std::unique_ptr<ParameterSteps> parameters_;
  std::vector<std::unique_ptr<recorders::Recorder>> recorders_;
  std::vector<Watched> watched_;
  std::vector<hooks::Handle> handles_;
  Sampler sampler_;

  // Forwards.
  std::atomic<std::int64_t> forwards_{0}, sampled_{0}, failures_{0}, own_ns_{0}, nonfinite_{0};
  std::atomic<std::int64_t> rows_{0}, window_began_{0}, parameters_copied_{0};
  std::atomic<bool> gradients_sampled_{false}, capture_requested_{false}, window_asked_{false};
  std::atomic<bool> nonfinite_in_window_{false}, failed_in_window_{false}, trained_{false};
  std::atomic<int> first_top_{-1}, calls_of_tops_{0};  // of a hidden root

  // Taking a window, in any thread.
  std::mutex take_mutex_;
  std::int64_t windows_ = 0;
  std::atomic<bool> busy_{true};  // the monitor's thread: it makes its tests first

  // The waiting work.
  mutable std::mutex due_mutex_;
  std::condition_variable due_changed_, due_done_;
  Due due_;
  std::uint64_t tickets_ = 0, done_ = 0;
  bool stops_ = false, ended_ = false;
  std::set<std::string> not_counted_;
  std::thread thread_;
  std::atomic<bool> closed_{false};

  // The digest of the parameters as they were last.
  std::mutex digest_mutex_;
  std::vector<std::pair<const void*, std::int64_t>> digest_of_;  // where they lie, and their versions
  std::string digest_;

  std::mutex judge_mutex_;
  std::atomic<std::thread::id> judging_{};
  std::unique_ptr<Judge> judge_;  // null: another process judges
};

}  // namespace torchtap::views::monitor::detail
