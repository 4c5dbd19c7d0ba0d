// Operations: their work, and their values.
#include <algorithm>

#include <torchtap/operations/inside.hpp>
#include <torchtap/views/report/detail/formulas.hpp>
#include <torchtap/views/report/detail/measured_model.hpp>
#include <torchtap/views/report/detail/stopped_clock.hpp>

namespace torchtap::views::report::detail {
namespace {

using Storages = c10::SmallVector<const void*, 6>;

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : static_cast<const void*>(tensor.unsafeGetTensorImpl());
}

std::int64_t bytes_read(const operations::Values& arguments, Storages& read) {
  std::int64_t bytes = 0;
  for (const c10::IValue& argument : arguments) {
    operations::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      bytes += bytes_of(tensor);
      read.push_back(memory_of(tensor));
    });
  }
  return bytes;
}

/// Adds the results to the bytes that were read. A view moves nothing, which -1 says.
std::int64_t bytes_written(const operations::Event& event, const Storages& read) {
  std::int64_t bytes = 0;
  bool views = true, any = false;
  for (const c10::IValue& result : event.results()) {
    operations::for_each_tensor(result, [&](const at::Tensor& tensor) {
      any = true;
      bytes += bytes_of(tensor);
      if (std::find(read.begin(), read.end(), memory_of(tensor)) == read.end()) views = false;
    });
  }
  const auto& arguments = event.schema().arguments();
  const bool writes = std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
  return any && views && !writes ? -1 : bytes;
}

}  // namespace

const OperationFacts& MeasuredModel::facts_of(const operations::Event& event) {
  return facts_.of(event, [&] {
    OperationFacts facts;
    facts.name = event.name();
    const auto own = options.formulas().find(facts.name);
    facts.formula = own != options.formulas().end() ? &own->second : built_in_formula(facts.name);
    facts.heavy = facts.formula == nullptr && is_heavy(facts.name);
    facts.reads = watch::reads_of(event.schema());
    return facts;
  });
}

Where MeasuredModel::where(ThreadCalls& thread) {
  Where result;
  result.backward = ledger_.in_backward(thread);
  const OpenCall* frame = ledger_.current(thread);
  if (frame == nullptr || frame->module < 0) return result;
  result.module = ledger_.tree[frame->module].module.path();
  if (frame->call >= 0) result.call = ledger_.calls[frame->call].number;
  return result;
}

/// An operation that another one calls.
void MeasuredModel::run_inside(operations::Event& event) {
  const OperationFacts* facts = nullptr;
  {
    const std::lock_guard lock(mutex_);
    facts = &facts_of(event);
  }
  run_counted(event, *facts);
}

/// Runs the operation and adds its multiply-accumulates, or the sum over the operations inside, to the
/// thread's.
void MeasuredModel::run_counted(operations::Event& event, const OperationFacts& facts) {
  if (facts.formula != nullptr) {
    const auto given = event.arguments();
    std::vector<c10::IValue> arguments(given.begin(), given.end());
    event.run();
    std::int64_t macs = -1;
    std::string failure;
    try {
      macs = (*facts.formula)({arguments.data(), arguments.size()}, event.results());
    } catch (const c10::Error& error) {
      failure = error.what_without_backtrace();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const std::lock_guard lock(mutex_);
    ThreadCalls& thread = ledger_.thread();
    if (macs < 0) {
      note_failure("The formula of " + facts.name + " fails: " + failure);
      ++not_counted_[{facts.name, where(thread).module}];
      return;
    }
    thread.parts_macs += macs;
    ++thread.parts_found;
    return;
  }
  std::int64_t found_before = 0;
  {
    const std::lock_guard lock(mutex_);
    found_before = ledger_.thread().parts_found;
  }
  operations::run_inside(event, [this](operations::Event& inner) { run_inside(inner); });
  if (!facts.heavy) return;
  const std::lock_guard lock(mutex_);
  ThreadCalls& thread = ledger_.thread();
  if (thread.parts_found == found_before) ++not_counted_[{facts.name, where(thread).module}];
}

void MeasuredModel::note_failure(const std::string& what) {
  constexpr std::size_t most = 20;
  if (notes_.size() < most && std::find(notes_.begin(), notes_.end(), what) == notes_.end())
    notes_.push_back(what);
}

/// A module that is never called may still be part of the computation: attention reads the weights of its
/// output layer itself.
void MeasuredModel::note_use(operations::Event& event) {
  for (const c10::IValue& argument : event.arguments()) {
    operations::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      owners_.visit(tensor, [&](const Owned& owned) {
        if (owned.kind != Owned::input) ledger_.tree[owned.module].used = true;
        return false;
      });
    });
  }
}

void MeasuredModel::raise() {
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    if (options.non_finite() != OnNonFinite::raise || raised_ || search_.first.empty()) return;
    raised_ = true;
    what = search_.first;
  }
  TORCH_CHECK(false, "views::report: ", what,
              ". ReportOptions().non_finite(OnNonFinite::note) goes on and notes it.");
}

void MeasuredModel::run(operations::Event& event) {
  if (!runs() || (ledger_.idle() && idle_nodes_ == 0)) return;
  const OperationFacts* facts = nullptr;
  Searched searched;
  Where at;
  Storages read;
  Work work;
  std::int64_t began = 0, macs_before = 0;
  {
    const std::lock_guard lock(mutex_);
    const Stopped stopped(*this, ledger_.thread());
    ThreadCalls& thread = stopped.thread;
    if (ledger_.idle() && thread.frames.empty()) return;
    if (OpenCall* frame = ledger_.current(thread); frame != nullptr)
      frame->hooked += ledger_.calibration.operation;
    facts = &facts_of(event);
    guarded([&] {
      note_use(event);
      if (options.work()) work.bytes = bytes_read(event.arguments(), read);
      if (options.non_finite() == OnNonFinite::ignore) return;
      at = where(thread);
      search_.before(event, facts->reads, searched, at);
    });
    macs_before = thread.parts_macs;
    began = stopped.moment();
  }
  raise();
  if (options.work()) {
    run_counted(event, *facts);
  } else {
    event.run();
  }
  {
    const std::lock_guard lock(mutex_);
    const Stopped stopped(*this, ledger_.thread());
    ThreadCalls& thread = stopped.thread;
    thread.event = stopped.moment();
    ledger_.charge_outside(thread, stopped.moment() - began);
    if (options.work()) {
      guarded([&] {
        const std::int64_t written = bytes_written(event, read);
        work.bytes = written < 0 ? 0 : work.bytes + written;
      });
      work.macs = thread.parts_macs - macs_before;
      work.operations = 1;
      ledger_.charge(thread, work);
    }
    if (options.non_finite() != OnNonFinite::ignore) guarded([&] { search_.after(event, searched, at); });
  }
  raise();
}

}  // namespace torchtap::views::report::detail
