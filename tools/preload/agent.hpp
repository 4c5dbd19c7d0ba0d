#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct GraphFunction;
}

/// The agent: the part of `torchtap preload` that runs inside the program.
namespace torchtap::tools::preload {

/// Called when the program does to a module what is usually done to whole models (asks for its parameters,
/// sets it to train, moves it). Learns the paths of its descendants. Does nothing for calls made by the agent
/// itself.
void found_root(const torch::nn::Module& root) noexcept;

/// A function of a backward begins, or ends, in this thread, and concerns the mode.
void backward(bool begins) noexcept;

/// Whether the next call of TorchScript is observed.
bool waits_for_script() noexcept;
/// Called in place of a function of TorchScript; calls `original`, which takes the arguments from the stack
/// and puts the result there.
void called_script(torch::jit::GraphFunction& function, const std::vector<c10::IValue>& stack,
                   const std::function<void()>& original);

/// Called when a function of the lite interpreter runs, of whose modules nothing is seen, which it notes
/// once.
void called_mobile() noexcept;

/// Has the end of the process, if it comes by `exit`, publish what is left: before objects of LibTorch, and
/// of the program that it had by now, are destroyed. Only the first call has an effect.
void publish_at_end();

/// 1 in the initial process, and one more after each fork.
std::uint64_t generation() noexcept;

}  // namespace torchtap::tools::preload
