#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace torchtap_test {

/// Runs `work` in a child process that SIGKILL ends at its `call`th call of the system that changes a file,
/// from 1: instead of the call, or in the middle of it if it writes. True if the child was killed, false if
/// `work` ended before. Fails the test if `work` throws.
///
/// Counts write, pwrite, rename, renameat, renameat2, link, unlink, unlinkat and mkdir of all threads.
bool kill_at(std::int64_t call, const std::function<void()>& work);

}  // namespace torchtap_test
