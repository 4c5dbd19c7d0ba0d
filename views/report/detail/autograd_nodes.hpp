#pragma once

// Autograd's nodes as they run, by LibTorch's record functions.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torchtap/views/watch/thread_callback.hpp>

namespace torchtap::views::report::detail {

/// The number of this thread that nodes of autograd carry.
std::uint64_t autograd_thread_id();

/// A node that is about to run.
struct NodeStart {
  std::uint64_t thread = 0, sequence = 0;
  bool accumulates = false;  // AccumulateGrad, which has no sequence number
  std::vector<at::Tensor> gradients;
};

/// Told of nodes. The calls come from all threads that run backward for the thread that watches.
class NodeListener {
 public:
  /// Whether it wants to be told of the node's end.
  virtual bool node_begins(const NodeStart& node) = 0;
  virtual void node_ends() = 0;

 protected:
  ~NodeListener() = default;
};

/// Reports to `listener` what runs backward for this thread, while it lives. Throws `c10::ValueError` if too
/// many watch at once.
class NodeWatch {
 public:
  explicit NodeWatch(const std::shared_ptr<NodeListener>& listener);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

 private:
  std::size_t slot_;
  std::optional<watch::ThreadCallback> callback_;
};

}  // namespace torchtap::views::report::detail
