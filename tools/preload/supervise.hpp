#pragma once

#include <sys/types.h>

#include <functional>

namespace torchtap::preload {

/// A program that has ended.
struct Ended {
  pid_t process = 0;
  int status = 0;  ///< as waitpid has it
};

/// Runs `program`, which has to become another program or end, in a child of this process and waits for it.
/// It is as if the program stood here: signals that are sent to this process reach it (those that are sent to
/// the whole group have reached it anyway), and where it stops this process stops.
Ended supervise(const std::function<void()>& program);

/// Ends this process as `program` ended, by the same status or signal.
[[noreturn]] void end_as(const Ended& program);

}  // namespace torchtap::preload
