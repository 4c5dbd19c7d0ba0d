#pragma once

// Finds operations of a pass that are passes of the same layer.

#include <cstdint>
#include <vector>

namespace torchtap::views::trace::detail {

/// A node as the rules see it. Its numbers are equal if the things that they stand for are.
struct LayerNode {
  /// Equal for nodes with the same function, the same arguments but tensors, in the same module, and with the
  /// same place among the operation's results. Inputs, outputs and outside tensors each have a separate
  /// layer.
  std::int64_t function = 0;
  /// The parameters and buffers that it reads, in the order of the arguments.
  std::vector<std::int64_t> parameters;
  /// For each tensor argument the index of the node that it refers to, smaller than its own; -1 for none.
  std::vector<std::int64_t> parents;
};

/// The layer of a node, and the number of its pass.
struct LayerOf {
  std::int64_t layer = 0;  // from 0, in the order of first passes
  std::int64_t pass = 1;   // from 1
};

/// Finds the layers in linear time. Nodes are passes of one layer if
///
/// 1. they have the same function and the same parameters (at least one);
/// 2. or they are reached from all passes of a layer along equal edges (position of the argument, function),
///    first to children, then to parents, and read no parameters;
/// 3. or, among the remaining ones, they are back-to-back repeats in the sequence of the program (equal in
/// function and parameters), in maximal runs. Their references reach at most one period back, or are the
/// same. There are at least three repeats, or two that are connected: one reads the other's result, or both
/// read the same tensor.
///
/// The question and the first rule are TorchLens's, which grows isomorphic subgraphs instead.
std::vector<LayerOf> same_layers(const std::vector<LayerNode>& nodes);

}  // namespace torchtap::views::trace::detail
