#pragma once

// Finds the file of a program, and reasons why LD_PRELOAD has no effect on it.

#include <string>

namespace torchtap::tools::preload {

/// The place where the shell finds the program, and the shell's status if it cannot be run.
struct Executable {
  std::string path;
  int status = 127;  ///< of the shell: 0, 127 not found, 126 not executable
};
Executable find_executable(const std::string& program);

/// The dynamic loader of a program; empty if it has none, or is a script.
std::string loader_of(const std::string& file);

/// Why LD_PRELOAD has no effect on it; empty if the file shows no reason.
std::string obstacle_of(const std::string& file);

}  // namespace torchtap::tools::preload
