#pragma once

/// Runs code before and after every operation of LibTorch that a thread calls.

#include <functional>
#include <memory>

#include <torchtap/base/api.hpp>
#include <torchtap/operations/event.hpp>

namespace torchtap::operations {

namespace detail {
struct Watcher;
struct Entered;
}  // namespace detail

/// Called for each operation. May replace arguments and results, and may throw: the exception reaches the
/// caller of the operation (of `forward`, of `backward`; of TorchScript as a `std::runtime_error`).
using Callback = std::function<void(Event&)>;

/// While it lives, `callback` is called for each operation that this thread calls:
///
///     {
///       operations::Scope scope([&](operations::Event& event) { ++calls[event.name()]; });
///       model->forward(x);
///     }
///
/// It sees operations of `aten` and of other libraries, from C++ and from TorchScript, in forward and in
/// backward, and factories such as `at::zeros`. Threads that LibTorch starts for TorchScript's forks and for
/// backward report to the same scope, so `callback` may be called by several at once; a thread of your own
/// joins with `at::ThreadLocalStateGuard`. It does not see what does not pass LibTorch's dispatcher:
/// `x.data()`, writes through `data_ptr`, TorchScript's own instructions, code that was compiled ahead of
/// time.
///
/// TorchScript runs as it is written: it folds no constants, which would run operations of branches that the
/// program does not take, and fuses nothing.
///
/// Operations that `callback` itself calls are not reported, nor are operations of torchtap's recorders.
/// Scopes nest: the innermost is asked first, and its `Event::run` asks the one around it. A scope belongs to
/// the thread that made it: destroy it there, scopes in reverse order. A scope that is destroyed in another
/// thread, or as a static object at the program's end, calls nothing any more; operations of its thread still
/// ask it.
///
/// It is a fallback on LibTorch's dispatch key `TESTING_ONLY_GenericMode`, which is registered when the first
/// scope opens (2.5 ms) and kept. Throws `c10::ValueError` if `callback` is empty, and `c10::Error` if other
/// code of the program has that key; the message names its registration.
class TORCHTAP_API Scope {
 public:
  /// Opens the scope.
  explicit Scope(Callback callback, Level level = Level::program);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::shared_ptr<detail::Watcher> watcher_;
  std::unique_ptr<detail::Entered> entered_;
};

/// While it lives, no scope sees the operations of this thread.
class TORCHTAP_API Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  bool was_;
};

}  // namespace torchtap::operations
