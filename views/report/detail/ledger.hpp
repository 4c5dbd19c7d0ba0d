#pragma once

// Charges time, work and memory to the modules that run in each thread.
//
// A frame is a call of a module, or a node of autograd that runs backward. It ends when its hook says so; a
// call that an exception ended has no such hook, and is closed when that is noticed.

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torchtap/views/report/detail/heap.hpp>
#include <torchtap/views/report/detail/tree.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/watch/calls.hpp>

namespace torchtap::views::report::detail {

/// A call of a module, inside of another one.
struct CallRecord {
  std::int64_t parent;  // another call; -1 for none
  std::int64_t module;
  std::int64_t number;  // which call of the module in this repeat
};

struct OpenCall {
  std::int64_t module = -1;  // -1 for a node of autograd that belongs to none
  std::int64_t call = -1;    // index into calls; -1 for a parameter's node
  bool backward = false;
  bool node = false;  // of autograd; these always end
  int depth = 0;      // of hooked calls, for modules that are not TorchScript's
  std::int64_t start = 0, inside = 0;
  std::int64_t hooked = 0;  // calls and operations inside, to take out what seeing them costs
  Work work, self_work;
  std::int64_t held = 0, peak = 0, allocations = 0;  // at the start; the most since
};

/// Sequence numbers of autograd's nodes that were made in a call, of one thread.
struct Segment {
  std::uint64_t begin, end;
  std::int64_t call;
};

struct ThreadCalls {
  std::vector<OpenCall> frames;
  std::int64_t own = 0;    // nanoseconds that torchtap took in this thread
  std::int64_t event = 0;  // when something was last seen, on the clock without `own`
  std::uint64_t sequence = 0;
  std::uint64_t autograd_thread = 0;
  std::int64_t parts_macs = 0, parts_found = 0;  // of operations inside of the running one
  // Memory that the thread frees and allocates after a node counts for that node.
  std::int64_t last_node_module = -1, last_node_call = -1, last_node_held = 0;
};

/// Nanoseconds that seeing a call or an operation costs, which no pair of time stamps encloses.
struct Calibration {
  std::int64_t inside = 0;     // in the module that is called
  std::int64_t around = 0;     // in its caller, for each call inside
  std::int64_t operation = 0;  // for each operation
};

/// Not thread safe: the measured model locks.
class Ledger {
 public:
  Ledger(std::vector<TreeNode> modules, watch::Nesting nesting)
      : tree(std::move(modules)), nesting_(std::move(nesting)) {}

  std::vector<TreeNode> tree;
  std::vector<CallRecord> calls;
  Calibration calibration;
  bool counts_times = true, watches_heap = false;
  Work outside_forward, outside_backward;
  std::int64_t outside_nanoseconds[2] = {0, 0};
  std::int64_t interrupted = 0;
  Memory whole[2];  // of the phases forward and backward
  bool ran_backward = false;

  void begin(std::thread::id owner);
  void set_phase(Phase next);
  /// May be read without a lock.
  Phase phase() const noexcept { return phase_.load(); }
  /// Whether modules and operations are charged to no module now.
  bool idle() const noexcept { return phase_ == Phase::other || phase_ == Phase::between; }
  /// Closes open calls, and adds the repeat to the sums.
  void end();

  ThreadCalls& thread();
  void enter(ThreadCalls& thread, std::int64_t module, std::int64_t now, int depth);
  /// Closes the innermost call of the module; false if no call is open.
  bool leave(ThreadCalls& thread, std::int64_t module, std::int64_t now);
  void enter_node(ThreadCalls& thread, std::int64_t module, std::int64_t call, std::int64_t now);
  void leave_node(ThreadCalls& thread, std::int64_t now);
  /// Charges work to the call or node that runs in the thread.
  void charge(ThreadCalls& thread, const Work& work);
  /// Charges the time of an operation that runs in no module.
  void charge_outside(ThreadCalls& thread, std::int64_t nanoseconds);
  /// The frame that an operation of the thread belongs to; null for none.
  OpenCall* current(ThreadCalls& thread);
  /// The call whose forward made the node of autograd with this number; -1 if no call did.
  std::int64_t call_of(std::uint64_t autograd_thread, std::uint64_t sequence) const;
  bool in_backward(ThreadCalls& thread);
  /// Whether a call is open in any thread.
  bool in_call() const;

 private:
  /// The most that was held since the last event counts for the frames that are open.
  void take_heap(OpenCall* begins);
  void cut_segment(ThreadCalls& thread);
  /// Closes the innermost frame. A call that an exception ended takes until the last event.
  void close(ThreadCalls& thread, std::int64_t now);
  void close_call(ThreadCalls& thread, const OpenCall& frame, std::int64_t now);
  void close_node(ThreadCalls& thread, const OpenCall& frame, std::int64_t now);
  void sum_up();
  void give_leftovers(ThreadCalls& thread);
  template <class Function>
  void for_chain(std::int64_t module, std::int64_t call, Function&& function);

  watch::Nesting nesting_;
  std::minstd_rand random_;  // chooses the repeats of which times are kept
  std::unordered_map<std::thread::id, std::unique_ptr<ThreadCalls>> threads_;
  std::thread::id owner_;
  std::unordered_map<std::uint64_t, std::vector<Segment>> segments_;
  HeapState heap_, phase_heap_;
  std::int64_t phase_peak_ = 0;
  std::atomic<Phase> phase_{Phase::forward};
};

}  // namespace torchtap::views::report::detail
