// Replaces the virtual tables of `AnyModule` holders, and runs hooks in the functions put in their place.

#include <dlfcn.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <cstring>
#include <list>

#include <torchtap/base/error.hpp>
#include <torchtap/base/expose.hpp>
#include <torchtap/base/of_thread.hpp>
#include <torchtap/hooks/detail/another_copy.hpp>
#include <torchtap/hooks/detail/any_value.hpp>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/holder_patch.hpp>
#include <torchtap/hooks/detail/readers.hpp>
#include <torchtap/hooks/detail/registry.hpp>

namespace torchtap::base {

struct ForwardHasDefaults {
  friend auto exposed(ForwardHasDefaults);
};
struct ForwardRequired {
  friend auto exposed(ForwardRequired);
};
struct ForwardDefaults {
  friend auto exposed(ForwardDefaults);
};
template struct Expose<ForwardHasDefaults, &torch::nn::Module::_forward_has_default_args>;
template struct Expose<ForwardRequired, &torch::nn::Module::_forward_num_required_args>;
template struct Expose<ForwardDefaults, &torch::nn::Module::_forward_populate_default_args>;

}  // namespace torchtap::base

namespace torchtap::hooks::detail {
namespace {

using torch::nn::AnyModulePlaceholder;
using torch::nn::AnyValue;

using Table = const void* const*;
using Forward = AnyValue (AnyModulePlaceholder::*)(std::vector<AnyValue>&&);
using Copy = std::unique_ptr<AnyModulePlaceholder> (AnyModulePlaceholder::*)() const;
using Destroy = void (*)(AnyModulePlaceholder*);

Table table_of(const AnyModulePlaceholder* holder) {
  return __atomic_load_n(reinterpret_cast<const Table*>(holder), __ATOMIC_ACQUIRE);
}

void set_table(AnyModulePlaceholder* holder, Table table) {
  __atomic_store_n(reinterpret_cast<Table*>(holder), table, __ATOMIC_RELEASE);
}

// A pointer to member function is a pair in the Itanium C++ ABI. First: for a virtual function its offset in
// the table (plus one, except on ARM, where the flag is in the second half), otherwise the function's
// address. Second: the adjustment of `this`, zero here.
struct MemberPointer {
  std::uintptr_t function;
  std::ptrdiff_t adjustment;
};

template <class Member>
std::size_t slot_of(Member member) {
  static_assert(sizeof(Member) == sizeof(MemberPointer), "torchtap needs the Itanium C++ ABI");
  MemberPointer pointer;
  std::memcpy(&pointer, &member, sizeof(pointer));
  return (pointer.function & ~std::uintptr_t{1}) / sizeof(void*);
}

template <class Member>
Member member_at(const void* function) {
  MemberPointer pointer{reinterpret_cast<std::uintptr_t>(function), 0};
  Member member;
  std::memcpy(&member, &pointer, sizeof(pointer));
  return member;
}

/// The forward of all patched tables. Set before the first table is patched.
const void* lent_forward = nullptr;

/// The patch that `table` belongs to; null for a holder's own table, which another thread may have put back
/// since the call was dispatched. Read the table once per call: the holder's pointer may change at any time.
HolderPatch* patch_of(Table table) {
  if (table[slot_of(&AnyModulePlaceholder::forward)] != lent_forward) return nullptr;
  const auto* slots = reinterpret_cast<const char*>(table);
  return reinterpret_cast<const HolderPatch::Table*>(slots - offsetof(HolderPatch::Table, slots))->patch;
}

/// The holder's own table, given that table or its patched copy.
Table original_of(Table table) {
  const HolderPatch* patch = patch_of(table);
  return patch == nullptr ? table : patch->original;
}

/// Adds the default arguments that the holder would add, so that hooks find an input in the same slot whether
/// or not it was passed.
C10_NOINLINE void complete(AnyModulePlaceholder* holder, std::vector<AnyValue>& arguments) {
  const auto module = holder->ptr();
  if (arguments.size() < (module.get()->*exposed(base::ForwardRequired{}))()) return;  // the holder throws
  arguments = (module.get()->*exposed(base::ForwardDefaults{}))(std::move(arguments));
}

/// The forward of the holder whose own table this is.
Forward forward_in(Table original) {
  return member_at<Forward>(original[slot_of(&AnyModulePlaceholder::forward)]);
}

/// Adds the tensors of a call that its hooks see.
C10_ALWAYS_INLINE void collect_inputs(const HolderPatch& patch, AnyModulePlaceholder* holder,
                                      std::vector<AnyValue>& arguments, CallTensors& inputs) {
  if (C10_UNLIKELY(patch.has_defaults.load(std::memory_order_relaxed))) complete(holder, arguments);
  for (auto& argument : arguments) collect(argument, inputs);
}

/// Calls the holder with the module's own hooks around the call. Takes what a forward takes in the same
/// order, so that the call of it ends that one.
[[gnu::flatten]] AnyValue call_module(AnyModulePlaceholder* holder, std::vector<AnyValue>&& arguments,
                                      HolderPatch& patch) {
  const Forward forward = forward_in(patch.original);
  if (is_idle(patch.gate)) return (holder->*forward)(std::move(arguments));
  // Before the hooks are looked up: the call that is interposed below runs none.
  if (C10_UNLIKELY(called_module.load(std::memory_order_relaxed) != nullptr))
    look_up_interposed(*holder->ptr());
  Call call(patch.gate);
  if (call.idle() || patch.holder.load() != holder) return (holder->*forward)(std::move(arguments));
  CallTensors inputs;
  if (call.wants_inputs()) {
    collect_inputs(patch, holder, arguments, inputs);
    call.before(inputs);
  }
  call.hand_on();
  AnyValue result = (holder->*forward)(std::move(arguments));
  if (call.wants_outputs()) {
    CallTensors outputs;
    collect(result, outputs);
    call.after(outputs);
  }
  return result;
}

/// One forward of a hooked `Sequential` in this thread, from its first entry to its last.
struct Run {
  Run(Sequence& of) : sequence(of), call(of.gate) { call.own_plan(); }
  Sequence& sequence;
  CallTensors inputs;
  Call call;
  std::size_t next = 0;  // position of the next entry
  bool inside = true;  // an entry or a hook is running: a call of the Sequential from within starts a new run
};

std::list<Run>& runs() {
  return base::of_thread<std::list<Run>>();
}

using RunIterator = std::list<Run>::iterator;

/// The last run of the sequence, preferably one that waits for its next entry: the others' entries may run in
/// other fibers of this thread.
RunIterator find_run(const Sequence& sequence) {
  auto& stack = runs();
  auto found = stack.end();
  for (auto run = stack.end(); run != stack.begin();) {
    if (&(--run)->sequence != &sequence) continue;
    if (!run->inside) return run;
    if (found == stack.end()) found = run;
  }
  return found;
}

/// Ends a run and the abandoned runs inside it. Runs whose entries run belong to other fibers.
class EndRun {
 public:
  explicit EndRun(RunIterator run) : run_(run) {}
  ~EndRun() {
    if (!armed_) return;
    for (auto run = runs().erase(run_); run != runs().end();) {
      run = run->inside ? std::next(run) : runs().erase(run);
    }
  }
  EndRun(const EndRun&) = delete;
  EndRun& operator=(const EndRun&) = delete;
  void not_yet() noexcept { armed_ = false; }

 private:
  RunIterator run_;
  bool armed_ = true;
};

void begin_run(Run& run, const HolderPatch& patch, AnyModulePlaceholder* holder,
               std::vector<AnyValue>& arguments) {
  if (run.call.idle()) return;
  collect_inputs(patch, holder, arguments, run.inputs);
  run.call.before(run.inputs);
}

AnyValue call_entry(HolderPatch& patch, Sequence& sequence, AnyModulePlaceholder* holder,
                    std::vector<AnyValue>&& arguments) {
  if (sequence.scope_only.load()) {
    Call call(sequence.gate);
    CallTensors none;
    if (!call.idle()) call.before(none);
    return call_module(holder, std::move(arguments), patch);
  }
  const std::size_t position = patch.position.load();
  RunIterator run = find_run(sequence);
  // Out of order while no entry is running: the previous run was abandoned, say by a caller that used only
  // the first entries.
  if (run != runs().end() && !run->inside && position != run->next) {
    runs().erase(run);
    run = runs().end();
  }
  const bool begins = position == 0 && (run == runs().end() || run->inside);
  if (begins) run = runs().emplace(runs().end(), sequence);
  if (run == runs().end() || (run->inside && !begins)) {
    return call_module(holder, std::move(arguments), patch);
  }

  EndRun end_of_run(run);
  run->inside = true;
  if (begins) begin_run(*run, patch, holder, arguments);
  AnyValue result = call_module(holder, std::move(arguments), patch);
  if (patch.last.load() && sequence.has_grown()) Registry::instance().grown(sequence);
  if (!patch.last.load()) {
    run->inside = false;
    run->next = position + 1;
    end_of_run.not_yet();
  } else if (!run->call.idle()) {
    CallTensors outputs;
    collect(result, outputs);
    run->call.after(outputs);
  }
  return result;
}

/// Never used as a holder. Lends its functions to patched tables: being virtual functions of this signature,
/// they have the right calling convention.
struct Lender : AnyModulePlaceholder {
  Lender() : AnyModulePlaceholder(typeid(Lender)) {}

  AnyValue forward(std::vector<AnyValue>&& arguments) override {
    const Table table = table_of(this);
    HolderPatch* patch = patch_of(table);
    auto* holder = static_cast<AnyModulePlaceholder*>(this);
    if (patch == nullptr) return (holder->*forward_in(table))(std::move(arguments));
    if (Sequence* sequence = patch->sequence.load(); sequence != nullptr && patch->holder.load() == holder) {
      return call_entry(*patch, *sequence, holder, std::move(arguments));
    }
    return call_module(holder, std::move(arguments), *patch);
  }

  std::unique_ptr<AnyModulePlaceholder> copy() const override {
    const Table table = table_of(this);
    HolderPatch* patch = patch_of(table);
    const auto copy = member_at<Copy>(original_of(table)[slot_of(&AnyModulePlaceholder::copy)]);
    const auto* holder = static_cast<const AnyModulePlaceholder*>(this);
    auto result = (holder->*copy)();
    if (patch != nullptr) Registry::instance().copied(*patch, holder, result.get());
    return result;
  }

  std::shared_ptr<torch::nn::Module> ptr() override { return nullptr; }
  std::unique_ptr<AnyModulePlaceholder> clone_module(TorchOptional<torch::Device> /*device*/) const override {
    return nullptr;
  }
  virtual void beyond() {}  // its index is the size of a holder's table
};

const void* lent(std::size_t slot) {
  static const auto* lender = new Lender;  // models may outlive static objects
  return table_of(lender)[slot];
}

template <std::size_t Slot>
void destroy(AnyModulePlaceholder* holder) {
  const Table table = table_of(holder);
  const Table original = original_of(table);
  // Restores the holder's own table.
  if (HolderPatch* patch = patch_of(table)) Registry::instance().lost(*patch, holder);
  reinterpret_cast<Destroy>(const_cast<void*>(original[Slot]))(holder);
}

/// Whether another copy of torchtap has made this table of a holder. No library has such a table, so memory
/// in front of a library's own table is not read.
bool is_of_another_copy(Table table) {
  Dl_info library;
  if (::dladdr(table, &library) != 0) return false;
  const auto* slots = reinterpret_cast<const char*>(table);
  return reinterpret_cast<const HolderPatch::Table*>(slots - offsetof(HolderPatch::Table, slots))->magic ==
         HolderPatch::kMagic;
}

std::size_t checked_slots() {
  lent_forward = lent(slot_of(&AnyModulePlaceholder::forward));
  const std::size_t slots = slot_of(&Lender::beyond);
  TORCH_CHECK_NOT_IMPLEMENTED(
      slot_of(&AnyModulePlaceholder::clone) == 2 && slot_of(&AnyModulePlaceholder::forward) > 2 &&
          slot_of(&AnyModulePlaceholder::forward) < slots && slots <= HolderPatch::kMaxSlots,
      "torchtap: virtual tables on this platform do not have the layout of the Itanium C++ ABI, so entries "
      "of containers cannot be hooked; use types that opt in (TORCHTAP_MODULE, torchtap::nn::…).");
  return slots;
}

}  // namespace

bool Sequence::has_grown() const {
  const auto alive = keep.lock();
  return (!shared || alive != nullptr) && module->size() != entries.load();
}

HolderPatch& HolderPatchPool::apply(AnyModulePlaceholder* holder, const std::string& module) {
  static const std::size_t slots = checked_slots();
  static_assert(offsetof(HolderPatch::Table, slots) == 4 * sizeof(void*),
                "other copies of torchtap rely on it");
  const Table original = table_of(holder);
  if (free_.count(original) == 0) check_copy(is_of_another_copy(original), module);
  auto& free = free_[original];
  const auto reusable = std::find_if(free.rbegin(), free.rend(),
                                     [](const HolderPatch* patch) { return !Readers::any_in(patch->gate); });
  HolderPatch* patch;
  if (reusable != free.rend()) {
    patch = *reusable;
    *reusable = free.back();
    free.pop_back();
  } else {
    patch = all_.emplace_back(std::make_unique<HolderPatch>()).get();
    patch->original = original;
    patch->table.patch = patch;
    patch->table.offset_to_top = reinterpret_cast<const std::ptrdiff_t*>(original)[-2];
    patch->table.type_info = original[-1];
    std::copy_n(original, slots, patch->table.slots.begin());
    patch->table.slots[0] = reinterpret_cast<const void*>(&destroy<0>);
    patch->table.slots[1] = reinterpret_cast<const void*>(&destroy<1>);
    for (const auto slot : {slot_of(&AnyModulePlaceholder::forward), slot_of(&AnyModulePlaceholder::copy)}) {
      patch->table.slots[slot] = lent(slot);
    }
  }
  patch->holder.store(holder);
  patch->has_defaults.store((holder->ptr().get()->*exposed(base::ForwardHasDefaults{}))());
  set_table(holder, patch->table.slots.data());
  return *patch;
}

void HolderPatchPool::restore(HolderPatch& patch) noexcept {
  set_table(patch.holder.load(), patch.original);
  patch.holder.store(nullptr);
  free_[patch.original].push_back(&patch);
}

}  // namespace torchtap::hooks::detail
