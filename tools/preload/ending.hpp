#pragma once

/// The ways in which a process ends, but for `return` and `exit`: signals, `_exit`, `abort`.
namespace torchtap::preload {

/// From now on this process saves what it has recorded when a signal ends it, and every `every` seconds
/// unless that is 0. Does nothing the second time. Signals that the program handles, or ignores, are its own.
void watch(double every) noexcept;
/// In a child made by fork: nobody watches.
void forget_watch() noexcept;

}  // namespace torchtap::preload
