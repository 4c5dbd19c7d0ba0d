#pragma once

// Runs the program as a child that behaves as if it ran in this process.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

namespace torchtap::tools::preload {

/// The end of a program.
struct Ended {
  pid_t process = 0;
  int status = 0;    ///< as from waitpid
  std::string name;  ///< of the program that it was in the end
};

/// Runs `program`, which must exec or exit, in a child process and waits for it. Behaves as if the program
/// ran in this process: forwards signals sent to this process (those sent to the whole group reach the
/// program anyway), and stops while the program is stopped. `meanwhile` is called again and again, after the
/// pause that it returns.
Ended supervise(const std::function<void()>& program,
                const std::function<std::chrono::milliseconds()>& meanwhile = {});

/// Ends this process as `program` ended, with the same status or signal.
[[noreturn]] void end_as(const Ended& program);

}  // namespace torchtap::tools::preload
