#pragma once

/// Calls `finish` when a process ends, in whichever way.
///
/// At a normal end, `return` from `main` or `exit`, that is before any thread_local or static object is
/// destroyed and before functions of `atexit` run: all objects of LibTorch and of the program still exist. No
/// code of torchtap runs after it. At a bad end (`abort`, a failed assert, an uncaught exception) another
/// thread saves, and this one, which may hold any lock, waits for it only as long as it makes progress.
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
