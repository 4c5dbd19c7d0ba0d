#pragma once

/// Calls `finish` when a process ends, in whichever way.
///
/// At a normal end, `return` from `main` or `exit`, that is before any thread_local or static object is
/// destroyed and before functions of `atexit` run: what LibTorch and the program have made is still there.
/// Nothing of ours runs after it. At a bad end (`abort`, a failed assert, an uncaught exception) another
/// thread saves, and this one waits for it only as long as it gets on: this one may hold any lock.
namespace torchtap::tools::preload {

/// Has the waiter call the functions below.
void await_ends();
/// Makes this process save its recording when a signal ends it, and every `every` seconds unless that is 0.
/// Only the first call has an effect. Leaves signals that the program handles or ignores alone.
void watch(double every) noexcept;
/// The process ends as programs mean to. In this thread, whose part of a recording nobody else may end.
void end_normally() noexcept;
/// The process ends by an abort, a failed assert or an uncaught exception.
void end_badly() noexcept;
bool ends_badly() noexcept;
/// Call in a forked child, which has no watching thread.
void forget_watch() noexcept;

}  // namespace torchtap::tools::preload
