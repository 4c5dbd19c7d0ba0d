#pragma once

// Threads of a publisher.

#include <functional>
#include <thread>

namespace torchtap::views::stream::detail {

/// Starts a thread that takes no signals, which are for the program's threads. At most 15 letters of `name`
/// are shown. Throws `std::system_error` if the system has no thread.
std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace torchtap::views::stream::detail
