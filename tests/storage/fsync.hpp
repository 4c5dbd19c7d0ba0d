#pragma once

/// Lets tests watch fsync and make it fail.

#include <atomic>

namespace torchtap_test {

/// Called first by the tests' own fsync (spool_test.cpp). Returns 0, or the error with which fsync fails.
inline std::atomic<int (*)(int fd)> before_fsync{nullptr};

}  // namespace torchtap_test
