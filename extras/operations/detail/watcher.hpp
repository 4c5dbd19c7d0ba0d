#pragma once

// The scopes that a thread is in, and the fallback that calls them.

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>

#include <atomic>
#include <memory>
#include <vector>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/operations/scope.hpp>

namespace torchtap::operations::detail {

/// LibTorch hands debug info to the threads that it starts. It uses this kind in its own tests only.
inline c10::DebugInfoKind info_kind() {
  return c10::DebugInfoKind::TEST_INFO;
}

/// A scope. Another thread may still know it when the scope was left.
struct Watcher {
  Callback callback;
  Level level = Level::program;
  std::atomic<bool> active{true};
};

/// The scopes of a thread, innermost first.
struct Watchers : c10::DebugInfoBase {
  std::vector<std::shared_ptr<Watcher>> list;
  bool leaf = false;  // whether one of them has Level::leaf

  /// The scopes of this thread; null if there are none, and once what LibTorch keeps for the thread is gone.
  static const Watchers* current() {
    if (!base::thread_lives()) return nullptr;
    return static_cast<const Watchers*>(c10::ThreadLocalDebugInfo::get(info_kind()));
  }
};

/// Keeps TorchScript from optimising what this thread runs while it lives. To fold constants, it would run
/// operations that are not the program's, catch their exceptions, and hide others by fusing them.
struct AsWritten {
  const bool was = torch::jit::getGraphExecutorOptimize();
  AsWritten() { torch::jit::setGraphExecutorOptimize(false); }
  ~AsWritten() { torch::jit::setGraphExecutorOptimize(was); }
  AsWritten(const AsWritten&) = delete;
  AsWritten& operator=(const AsWritten&) = delete;
};

/// Puts a thread into scopes while it lives.
struct Entered {
  struct State {
    AsWritten as_written;
    c10::DebugInfoGuard info;
    c10::impl::IncludeDispatchKeyGuard included{base::operations_key};

    explicit State(std::shared_ptr<Watchers> watchers) : info(info_kind(), std::move(watchers)) {}
  };
  base::InThread<State> state;

  explicit Entered(std::shared_ptr<Watchers> watchers) : state(std::move(watchers)) {}
};

/// Registers the fallback; further calls do nothing. Throws `c10::Error` if the key is not free.
void register_fallback();

}  // namespace torchtap::operations::detail
