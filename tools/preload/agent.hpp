#pragma once

#include <cstdint>

namespace torch::nn {
class Module;
}

/// The agent: what `torchtap preload` has in the program.
namespace torchtap::preload {

/// The program asked something of a module that it asks of whole models (its parameters, to train, to move):
/// its descendants can be called by their paths from there. Does nothing while the agent itself is at work.
void found_root(const torch::nn::Module& root) noexcept;

/// Saves what this process has recorded and says so, once.
void finish() noexcept;
/// Saves what it has recorded so far.
void snapshot() noexcept;
/// Whether there is anything to save: something was recorded, in this process and not in the one that it was
/// forked from.
bool is_recording() noexcept;

/// Which of the processes this is that became of one another by fork.
std::uint64_t generation() noexcept;

}  // namespace torchtap::preload
