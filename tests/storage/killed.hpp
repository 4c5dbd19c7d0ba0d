#pragma once

/// Runs code in a child process that is killed at a certain system call.

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace torchtap_test {

/// Runs `work` in a child process, and kills that (SIGKILL) at its `call`th system call that changes a file,
/// from 1: instead of the call, or in the middle of a write. Returns true if the child was killed, false if
/// `work` ended before. Fails the test if `work` throws.
///
/// Counts write, pwrite, rename, renameat, renameat2, link, unlink, unlinkat and mkdir of all threads.
bool kill_at(std::int64_t call, const std::function<void()>& work);

}  // namespace torchtap_test
