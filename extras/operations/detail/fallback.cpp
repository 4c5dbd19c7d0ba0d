// The fallback that every operation of a thread in a scope goes through.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <utility>

#include <torchtap/operations/detail/watcher.hpp>
#include <torchtap/operations/inside.hpp>

namespace torchtap::operations::detail {
namespace {

using base::operations_key;

/// Lets this thread's operations through to the fallback while it lives, although it runs inside of it.
struct Seen {
  const bool was = c10::impl::tls_is_dispatch_key_excluded(operations_key);
  Seen() { c10::impl::tls_set_dispatch_key_excluded(operations_key, false); }
  ~Seen() { c10::impl::tls_set_dispatch_key_excluded(operations_key, was); }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
};

/// Given to `run_inside`, for the event that runs next in this thread.
thread_local const Callback* next_inside = nullptr;

/// One operation on its way through the scopes.
struct Way {
  const c10::OperatorHandle& operation;
  c10::DispatchKeySet keys;  // the dispatch keys below this one
  torch::jit::Stack& stack;
  const Watchers& watchers;
  bool composite;  // composed of operations that scopes at leaf level see in its stead
  mutable c10::SmallVector<std::shared_ptr<Watcher>, 1> inside{};  // of the operations that this one calls

  void from(std::size_t index) const;
  void run() const;
};

class Call final : public Event {
 public:
  Call(const Way& way, std::size_t index) noexcept
      : Event(way.operation, way.stack), way_(way), index_(index) {}
  using Event::finish;

 private:
  void proceed() override;

  const Way& way_;
  std::size_t index_;
};

void Call::proceed() {
  const Callback* const callback = std::exchange(next_inside, nullptr);
  if (callback == nullptr) return way_.from(index_ + 1);
  const auto watcher = std::make_shared<Watcher>();
  watcher->callback = *callback;
  way_.inside.push_back(watcher);
  struct Deactivate {  // threads that the operation started may know it for longer
    Watcher& watcher;
    ~Deactivate() { watcher.active.store(false); }
  } const deactivate{*watcher};
  way_.from(index_ + 1);
}

void Way::from(std::size_t index) const {
  const auto& list = watchers.list;
  const auto asked = [&](const Watcher& watcher) {
    return watcher.active.load(std::memory_order_relaxed) && !(composite && watcher.level == Level::leaf);
  };
  while (index < list.size() && !asked(*list[index])) ++index;
  if (index == list.size()) {
    run();
    return;
  }
  Call event(*this, index);
  list[index]->callback(event);
  event.finish();
}

void Way::run() const {
  if (!composite && inside.empty()) {
    operation.redispatchBoxed(keys, &stack);
    return;
  }
  auto parts = std::make_shared<Watchers>();
  parts->leaf = composite;
  parts->list.assign(inside.begin(), inside.end());
  for (const auto& watcher : watchers.list) {
    if (composite && watcher->level == Level::leaf) parts->list.push_back(watcher);
  }
  const c10::DebugInfoGuard info(info_kind(), std::move(parts));
  const Seen seen;
  operation.redispatchBoxed(keys, &stack);
}

/// Whether LibTorch runs the operation as a composition of others. It prefers the composite kernel to a
/// formula for gradients that the operation has as well (`matmul` of 1.13), unless the backend has a kernel
/// for the operation.
bool is_composite(const c10::OperatorHandle& operation, c10::DispatchKeySet keys) {
  return operation.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !operation.hasKernelForDispatchKey(c10::highestPriorityBackendTypeId(keys));
}

void fallback(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inside(operations_key);
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, operations_key);
  const Watchers* watchers = Watchers::current();
  // Not callBoxed, which would count the operation twice in a profiler.
  if (watchers == nullptr) return operation.redispatchBoxed(below, stack);
  Way{operation, below, *stack, *watchers, watchers->leaf && is_composite(operation, below)}.from(0);
}

torch::Library* make_library() {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto kernels = dispatcher.getRegistrationsForDispatchKey(operations_key);
  TORCH_CHECK(kernels.empty(), "operations::Scope: needs LibTorch's dispatch key ", toString(operations_key),
              ", and other code of this program has registered ", kernels.size(),
              " kernels for it, one for \"", kernels.front(),
              "\"; only one of the two can be used in a program.");
  try {
    auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "_", operations_key,
                                                    "torchtap/operations/detail/fallback.cpp", __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    return library.release();  // kept: threads may be on their way through it at any time
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, "operations::Scope: needs LibTorch's dispatch key ", toString(operations_key),
                ", and other code of this program has it; only one of the two can be used in a program. ",
                error.what_without_backtrace());
  }
}

}  // namespace

void register_fallback() {
  // Used, or the compiler drops the variable, which nothing reads, and LeakSanitizer finds the library lost.
  [[gnu::used]] static const torch::Library* const library = make_library();
}

}  // namespace torchtap::operations::detail

namespace torchtap::operations {

void run_inside(Event& event, const Callback& inside) {
  TORCH_CHECK_VALUE(inside != nullptr, "operations::run_inside: the function for the operations inside of ",
                    event.name(), " is empty; pass one, or call Event::run().");
  struct Given {  // taken back if the event refuses to run
    explicit Given(const Callback& callback) { detail::next_inside = &callback; }
    ~Given() { detail::next_inside = nullptr; }
  } const given(inside);
  event.run();
}

}  // namespace torchtap::operations
