#pragma once

// Starts threads that take no signals, which are for the program's threads, but their own faults.

#include <functional>
#include <thread>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// At most 15 letters of `name` are shown by the system. Throws `std::system_error` if it has no thread; the
/// caller's signals are as before in each case.
TORCHTAP_API std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace torchtap::base
