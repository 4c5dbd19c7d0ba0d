#pragma once

/// Handles the ends of a process other than `return` and `exit`: signals, `_exit`, `abort`.
namespace torchtap::tools::preload {

/// Makes this process save its recording when a signal ends it, and every `every` seconds unless that is 0.
/// Only the first call has an effect. Leaves signals that the program handles or ignores alone.
void watch(double every) noexcept;
/// The process ends by an abort, a failed assert or an uncaught exception.
void note_bad_end() noexcept;
bool ends_badly() noexcept;
/// Call in a forked child, which has no watching thread.
void forget_watch() noexcept;

}  // namespace torchtap::tools::preload
