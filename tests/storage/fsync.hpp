#pragma once

#include <atomic>

namespace torchtap_test {

/// What the tests' own fsync (spool_test.cpp) asks first: it returns 0, or the error that fsync shall fail
/// with.
inline std::atomic<int (*)(int fd)> before_fsync{nullptr};

}  // namespace torchtap_test
