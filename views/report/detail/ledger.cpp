// Opening and closing frames.
#include <ATen/SequenceNumber.h>

#include <algorithm>

#include <torchtap/views/report/detail/autograd_nodes.hpp>
#include <torchtap/views/report/detail/ledger.hpp>

namespace torchtap::views::report::detail {
namespace {

void add(Work& sum, const Work& work) {
  sum.macs += work.macs;
  sum.bytes += work.bytes;
  sum.operations += work.operations;
}

}  // namespace

ThreadCalls& Ledger::thread() {
  auto& slot = threads_[std::this_thread::get_id()];
  if (slot == nullptr) {
    slot = std::make_unique<ThreadCalls>();
    slot->autograd_thread = autograd_thread_id();
  }
  return *slot;
}

bool Ledger::in_call() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const auto& thread) { return !thread.second->frames.empty(); });
}

void Ledger::begin(std::thread::id owner) {
  threads_.clear();
  calls.clear();
  segments_.clear();
  owner_ = owner;
  phase_ = Phase::forward;
  phase_heap_ = heap_ = watches_heap ? HeapWatch::read() : HeapState();
  phase_peak_ = heap_.held;
  whole[0] = whole[1] = Memory();
  ran_backward = false;
  outside_forward = outside_backward = Work();
  for (TreeNode& node : tree) {
    for (DirectionSums* sums : {&node.forward, &node.backward}) {
      sums->calls_now = sums->inclusive.now = sums->self.now = 0;
      sums->summed_now = false;
      sums->memory_now = Memory();
      sums->work_now = sums->self_work_now = Work();
    }
  }
}

void Ledger::set_phase(Phase next) {
  if (watches_heap) {
    heap_ = HeapWatch::read();
    phase_peak_ = std::max(phase_peak_, heap_.peak);
    if (!idle()) {
      Memory& memory = whole[phase_ == Phase::backward ? 1 : 0];
      memory.kept += heap_.held - phase_heap_.held;
      memory.peak = std::max(memory.peak, phase_peak_ - phase_heap_.held);
      memory.allocations += heap_.allocations - phase_heap_.allocations;
    }
    phase_heap_ = heap_;
    phase_peak_ = heap_.held;
    for (auto& entry : threads_) give_leftovers(*entry.second);
  }
  phase_ = next;
}

void Ledger::end() {
  set_phase(phase_);
  for (auto& entry : threads_) {
    ThreadCalls& thread = *entry.second;
    while (!thread.frames.empty()) close(thread, thread.event);
    give_leftovers(thread);
  }
  sum_up();
  for (TreeNode& node : tree) {
    for (DirectionSums* sums : {&node.forward, &node.backward}) {
      if (!sums->ran_now()) continue;
      if (sums == &node.backward && !sums->summed_now) {  // which was counted by autograd's nodes
        sums->calls_now = std::max<std::int64_t>(node.forward.calls_now, 1);
      }
      for (TimeSums* times : {&sums->inclusive, &sums->self}) {
        if (times->first < 0) times->first = times->now;
      }
      if (counts_times) {
        sums->calls += sums->calls_now;
        sums->inclusive.count(random_);
        sums->self.count(random_);
      }
      sums->memory = sums->memory_now;
      sums->work = sums->work_now;
      sums->self_work = sums->self_work_now;
    }
  }
  threads_.clear();
  segments_.clear();
  calls.clear();
}

/// The cost of a module whose calls were never seen is the sum of the modules inside, and autograd's work for
/// its own parameters. When the most was held in all of these together is not known.
void Ledger::sum_up() {
  for (auto node = tree.rbegin(); node != tree.rend(); ++node) {  // children stand behind
    if (node->called) continue;
    for (const bool backward : {false, true}) {
      DirectionSums& sums = node->direction(backward);
      std::int64_t inclusive = sums.self.now;
      Work work = sums.self_work_now;
      Memory memory;
      for (const std::int64_t child : node->children) {
        const DirectionSums& inside = tree[child].direction(backward);
        if (!inside.ran_now()) continue;
        sums.summed_now = true;
        inclusive += inside.inclusive.now;
        add(work, inside.work_now);
        memory.kept += inside.memory_now.kept;
        memory.peak = std::max(memory.peak, inside.memory_now.peak);
        memory.allocations += inside.memory_now.allocations;
      }
      if (!sums.summed_now) continue;
      sums.calls_now = 0;
      sums.inclusive.now = inclusive;
      sums.work_now = work;
      sums.memory_now = memory;
    }
  }
}

/// The most that was held since the last event counts for the frames that were open.
void Ledger::take_heap(OpenCall* frame) {
  if (!watches_heap) return;
  heap_ = HeapWatch::read();
  phase_peak_ = std::max(phase_peak_, heap_.peak);
  for (auto& entry : threads_) {
    auto& frames = entry.second->frames;
    if (!frames.empty()) frames.back().peak = std::max(frames.back().peak, heap_.peak);
  }
  if (frame == nullptr) return;
  frame->held = frame->peak = heap_.held;
  frame->allocations = heap_.allocations;
}

/// Memory allocated since the last event belongs to the innermost call.
void Ledger::cut_segment(ThreadCalls& thread) {
  const std::uint64_t now = at::sequence_number::peek();
  if (!thread.frames.empty() && thread.frames.back().call >= 0 && now > thread.sequence) {
    segments_[thread.autograd_thread].push_back({thread.sequence, now, thread.frames.back().call});
  }
  thread.sequence = now;
}

std::int64_t Ledger::call_of(std::uint64_t autograd_thread, std::uint64_t sequence) const {
  const auto found = segments_.find(autograd_thread);
  if (found == segments_.end()) return -1;
  const auto& segments = found->second;
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), sequence,
                       [](std::uint64_t number, const Segment& one) { return number < one.begin; });
  if (after == segments.begin()) return -1;
  const Segment& segment = *std::prev(after);
  return sequence < segment.end ? segment.call : -1;
}

void Ledger::enter(ThreadCalls& thread, std::int64_t module, std::int64_t now, int depth) {
  const auto ended = [&](const OpenCall& frame) {
    return !frame.node && nesting_.ended(static_cast<std::size_t>(frame.module), frame.depth,
                                         static_cast<std::size_t>(module), depth);
  };
  while (!thread.frames.empty() && ended(thread.frames.back())) close(thread, thread.event);
  cut_segment(thread);
  OpenCall frame;
  take_heap(&frame);
  frame.module = module;
  frame.depth = depth;
  tree[module].called = true;
  frame.call = static_cast<std::int64_t>(calls.size());
  frame.start = now;
  const OpenCall* parent = current(thread);
  calls.push_back({parent == nullptr ? -1 : parent->call, module, tree[module].forward.calls_now++});
  thread.frames.push_back(frame);
  thread.event = now;
}

bool Ledger::leave(ThreadCalls& thread, std::int64_t module, std::int64_t now) {
  const auto is_call = [&](const OpenCall& frame) { return !frame.node && frame.module == module; };
  ThreadCalls* of = &thread;
  if (std::none_of(thread.frames.begin(), thread.frames.end(), is_call)) {
    // TorchScript may continue in another thread after it waited.
    const auto found = std::find_if(threads_.begin(), threads_.end(), [&](const auto& entry) {
      const auto& frames = entry.second->frames;
      return std::any_of(frames.begin(), frames.end(), is_call);
    });
    if (found == threads_.end()) return false;
    of = found->second.get();
    now += thread.own - of->own;  // each thread's clock stood still for itself
  }
  while (!is_call(of->frames.back())) {
    if (of->frames.back().node) return false;
    close(*of, of->event);
  }
  if (of == &thread) cut_segment(thread);
  const OpenCall frame = of->frames.back();
  take_heap(nullptr);
  close_call(*of, frame, now);
  of->event = now;
  return true;
}

void Ledger::close(ThreadCalls& thread, std::int64_t now) {
  take_heap(nullptr);
  const OpenCall frame = thread.frames.back();
  if (frame.node) {
    close_node(thread, frame, now);
  } else {
    ++interrupted;
    close_call(thread, frame, now);
  }
}

void Ledger::close_call(ThreadCalls& thread, const OpenCall& open, std::int64_t now) {
  OpenCall frame = open;
  if (watches_heap) frame.peak = std::max(frame.peak, thread.frames.back().peak);
  thread.frames.pop_back();
  DirectionSums& sums = tree[frame.module].forward;
  const std::int64_t inclusive =
      std::max<std::int64_t>(now - frame.start - calibration.inside - frame.hooked, 0);
  const std::int64_t self = std::max<std::int64_t>(inclusive - frame.inside, 0);
  const bool recursive = std::any_of(thread.frames.begin(), thread.frames.end(), [&](const OpenCall& around) {
    return !around.node && around.module == frame.module;
  });
  sums.self.now += self;
  if (sums.self.first < 0) sums.self.first = self;
  add(sums.self_work_now, frame.self_work);
  if (!recursive) {
    sums.inclusive.now += inclusive;
    if (sums.inclusive.first < 0) sums.inclusive.first = inclusive;
    add(sums.work_now, frame.work);
    if (watches_heap) {
      sums.memory_now.kept += heap_.held - frame.held;
      sums.memory_now.peak = std::max(sums.memory_now.peak, frame.peak - frame.held);
      sums.memory_now.allocations += heap_.allocations - frame.allocations;
    }
  }
  OpenCall* const around = current(thread);
  if (around == nullptr) return;
  if (!around->node) add(around->work, frame.work);
  if (thread.frames.empty()) return;  // it ran beside the frame of another thread
  around->inside += inclusive;
  around->hooked += frame.hooked + calibration.inside + calibration.around;
  around->peak = std::max(around->peak, frame.peak);
}

template <class Function>
void Ledger::for_chain(std::int64_t module, std::int64_t call, Function&& function) {
  if (call < 0) {
    if (module < 0) return;
    for (const std::int64_t one : tree[module].chain) function(tree[one].backward);
    return;
  }
  std::vector<std::int64_t> seen;  // a module that calls itself counts once
  for (; call >= 0; call = calls[call].parent) {
    const std::int64_t one = calls[call].module;
    if (std::find(seen.begin(), seen.end(), one) != seen.end()) continue;
    seen.push_back(one);
    function(tree[one].backward);
  }
}

/// Charges changes of memory between two nodes of autograd to the earlier one: autograd frees a node's saved
/// tensors only after the node returns.
void Ledger::give_leftovers(ThreadCalls& thread) {
  if (!watches_heap || (thread.last_node_module < 0 && thread.last_node_call < 0)) return;
  const std::int64_t change = heap_.held - thread.last_node_held;
  for_chain(thread.last_node_module, thread.last_node_call,
            [&](DirectionSums& sums) { sums.memory_now.kept += change; });
  thread.last_node_module = thread.last_node_call = -1;
}

void Ledger::enter_node(ThreadCalls& thread, std::int64_t module, std::int64_t call, std::int64_t now) {
  ran_backward = true;
  cut_segment(thread);
  OpenCall frame;
  take_heap(&frame);
  give_leftovers(thread);
  frame.node = frame.backward = true;
  frame.call = call;
  frame.module = call >= 0 ? calls[call].module : module;
  frame.start = now;
  thread.frames.push_back(frame);
  thread.event = now;
}

void Ledger::leave_node(ThreadCalls& thread, std::int64_t now) {
  while (!thread.frames.empty() && !thread.frames.back().node) close(thread, thread.event);
  if (thread.frames.empty()) return;
  cut_segment(thread);
  take_heap(nullptr);
  const OpenCall frame = thread.frames.back();
  close_node(thread, frame, now);
  thread.event = now;
}

void Ledger::close_node(ThreadCalls& thread, const OpenCall& frame, std::int64_t now) {
  thread.frames.pop_back();
  const std::int64_t all = std::max<std::int64_t>(now - frame.start - frame.hooked, 0);
  const std::int64_t self = std::max<std::int64_t>(all - frame.inside, 0);
  if (frame.module < 0) {
    outside_nanoseconds[1] += self;
    add(outside_backward, frame.self_work);
  } else {
    DirectionSums& own = tree[frame.module].backward;
    own.self.now += self;
    add(own.self_work_now, frame.self_work);
  }
  for_chain(frame.module, frame.call, [&](DirectionSums& sums) {
    ++sums.calls_now;
    sums.inclusive.now += self;
    add(sums.work_now, frame.self_work);
    if (!watches_heap) return;
    Memory& memory = sums.memory_now;
    memory.peak = std::max(memory.peak, memory.kept + frame.peak - frame.held);
    memory.kept += heap_.held - frame.held;
    memory.allocations += heap_.allocations - frame.allocations;
  });
  thread.last_node_module = frame.module;
  thread.last_node_call = frame.call;
  thread.last_node_held = heap_.held;
  if (thread.frames.empty()) return;
  OpenCall& around = thread.frames.back();
  around.inside += all;
  around.hooked += frame.hooked;
  around.peak = std::max(around.peak, frame.peak);
}

OpenCall* Ledger::current(ThreadCalls& thread) {
  if (!thread.frames.empty()) return &thread.frames.back();
  if (std::this_thread::get_id() == owner_) return nullptr;
  // A thread that LibTorch started for the model: it belongs to the outermost module that runs.
  const auto owner = threads_.find(owner_);
  if (owner == threads_.end() || owner->second->frames.empty()) return nullptr;
  return &owner->second->frames.front();
}

bool Ledger::in_backward(ThreadCalls& thread) {
  const OpenCall* frame = current(thread);
  return frame != nullptr ? frame->backward : phase_ == Phase::backward;
}

void Ledger::charge(ThreadCalls& thread, const Work& work) {
  if (OpenCall* frame = current(thread); frame != nullptr) {
    add(frame->work, work);
    add(frame->self_work, work);
  } else {
    add(phase_ == Phase::backward ? outside_backward : outside_forward, work);
  }
}

void Ledger::charge_outside(ThreadCalls& thread, std::int64_t nanoseconds) {
  if (current(thread) == nullptr) outside_nanoseconds[phase_ == Phase::backward ? 1 : 0] += nanoseconds;
}

}  // namespace torchtap::views::report::detail
