#pragma once

// The state of a report, and the events of hooks, operations and nodes that change it.

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/process.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/report/detail/autograd_nodes.hpp>
#include <torchtap/views/report/detail/heap.hpp>
#include <torchtap/views/report/detail/ledger.hpp>
#include <torchtap/views/report/detail/non_finite_search.hpp>
#include <torchtap/views/report/detail/owners.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/watch/calls.hpp>
#include <torchtap/views/watch/facts.hpp>

namespace torchtap::views::report::detail {

/// Facts that hold for all calls of an operation.
struct OperationFacts {
  std::string name;
  const Formula* formula = nullptr;
  bool heavy = false;       // without a formula
  std::vector<bool> reads;  // the values of each argument
};

/// A gradient that will arrive at a node of autograd: of an input or output of a module.
struct Arrival {
  std::int64_t module;
  bool output;
  std::int64_t slot;
  std::uint32_t number;  // among the node's
};

class MeasuredModel final : public NodeListener,
                            public watch::CallListener,
                            public std::enable_shared_from_this<MeasuredModel> {
 public:
  MeasuredModel(const std::vector<model::ModuleRef>& modules, ReportOptions options);

  /// Attaches to every module that can be hooked.
  std::vector<hooks::Handle> attach_all();
  void begin();
  void end() noexcept;
  void set_phase(Phase phase);
  bool in_call() const noexcept;

  void call_begins(std::size_t module, int depth, hooks::Event& event) override;
  void call_ends(std::size_t module, hooks::Event& event) override;
  void run(operations::Event& event);
  bool node_begins(const NodeStart& node) override;
  void node_ends() override;
  /// The parameter's gradient comes next in this thread.
  void parameter_comes(std::int64_t module) noexcept;

  Measurements results() const;
  /// Keeps the measurements, and nothing of the model.
  void let_go();
  bool gone() const noexcept { return of_gone_.has_value(); }
  void follow(const std::vector<model::ModuleRef>& modules);

  const ReportOptions options;
  const bool scripted;
  std::vector<hooks::Handle> script_handles;  // stay attached between recordings
  std::atomic<bool> attached{false};          // a recording lives
  std::atomic<bool> open{false};              // a repeat runs
  bool heap_taken = false;                    // another report watched LibTorch's allocations
  bool heap_displaced = false;

 private:
  friend struct Attached;
  /// Whether a repeat of this process runs: other threads may have held the lock when a child was forked.
  bool runs() const noexcept { return open && made_here_; }
  class Stopped;
  using Key = std::pair<std::uint64_t, std::uint64_t>;

  std::int64_t now() const;
  void count_spent();
  void synchronize(const hooks::Tensors& tensors) const;
  const OperationFacts& facts_of(const operations::Event& event);
  Where where(ThreadCalls& thread);
  void run_inside(operations::Event& event);
  void run_counted(operations::Event& event, const OperationFacts& facts);
  void expect_gradient(std::int64_t module, bool output, std::int64_t slot, const at::Tensor& tensor);
  void note_inputs(std::int64_t module, const hooks::Tensors& inputs, bool outermost);
  void note_outputs(std::int64_t module, const hooks::Tensors& outputs);
  void note_gradients(const NodeStart& start);
  void note_use(operations::Event& event);
  void look_at_values(const at::Tensor& tensor, NonFinite& sums);
  void measure_gradients() noexcept;
  void add_gradients();
  void raise();
  /// An error of torchtap itself becomes a note, never an error of the user's model.
  template <class Function>
  void guarded(Function&& function) {
    try {
      function();
    } catch (const c10::Error& error) {
      note_failure(error.what_without_backtrace());
    } catch (const std::exception& error) {
      note_failure(error.what());
    }
  }
  void note_failure(const std::string& what);

  std::vector<model::ModuleRef> modules() const;
  /// Keeps names alone of the modules.
  void let_go_of_modules();

  base::MadeHere made_here_;
  mutable std::mutex mutex_;
  Ledger ledger_;
  std::optional<Measurements> of_gone_;  // until a model follows
  std::int64_t followed_ = 0;            // how many models did
  Owners owners_;
  NonFiniteSearch search_{owners_};
  std::map<Key, c10::SmallVector<Arrival, 2>> arrivals_;
  watch::PerOperation<OperationFacts> facts_;
  std::map<std::pair<std::string, std::string>, std::int64_t> not_counted_;  // by function and module
  std::int64_t repeats_ = 0, recorded_ = 0;
  std::int64_t ran_ = 0;                      // modules
  std::int64_t phase_began_ = 0, spent_ = 0;  // of the repeat; without `Phase::other`
  double seconds_ = 0, own_seconds_ = 0, outside_seconds_[2] = {0, 0};
  bool raised_ = false;
  std::vector<std::string> notes_;

  std::atomic<int> idle_nodes_{0};  // that run although the phase is idle
  bool gradients_arrived_ = false;  // since they were measured

  ModuleRow row(std::int64_t index) const;
  /// Fills in `marks` and `gradient_ratio` of all rows. Ends the lock before it asks rules, which may be the
  /// program's.
  void judge(ModuleRow& root, std::unique_lock<std::mutex>& lock) const;
  std::vector<std::string> all_notes() const;
};

/// Everything that is attached while a recording lives.
struct Attached {
  explicit Attached(std::shared_ptr<MeasuredModel> of);
  ~Attached();
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  std::shared_ptr<MeasuredModel> measured;

 private:
  void attach();
  void release() noexcept;
  void watch_parameters();
  void unwatch_parameters() noexcept;

  struct Watched;
  std::vector<Watched> watched_;
  std::vector<hooks::Handle> handles_;
  std::unique_ptr<HeapWatch> heap_;
  std::optional<NodeWatch> nodes_;
  std::optional<operations::Scope> scope_;
};

}  // namespace torchtap::views::report::detail
