// Asks autograd whether this thread runs a backward.

#include <torch/csrc/autograd/graph_task.h>

#include <torchtap/base/backward.hpp>

namespace torchtap::base {

bool in_backward() noexcept {
  return torch::autograd::get_current_graph_task_exec_info() != nullptr;
}

}  // namespace torchtap::base
