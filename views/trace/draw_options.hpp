#pragma once

/// Options for pictures of histories.

#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::views::trace {

class Node;

/// The direction of the arrows.
enum class Direction { bottom_up, top_down, left_right };

/// Chained like LibTorch's own options: `DrawOptions().rolled(true).depth(2)`.
class TORCHTAP_API DrawOptions {
 public:
  /// Attributes of Graphviz: {{"fillcolor", "red"}}.
  using Attributes = std::map<std::string, std::string>;
  /// Changes the attributes of one node; they hold the defaults.
  using Style = std::function<void(const Node& node, Attributes& attributes)>;

  /// One node for each layer instead of one for each of its passes.
  TORCH_ARG(bool, rolled) = false;
  /// Modules nested deeper than this are drawn as one box: 1 shows the root's children as boxes. By default
  /// all is shown, unless that is more than `max_nodes`.
  TORCH_ARG(std::optional<std::int64_t>, depth);
  /// Above this number of nodes, modules collapse from the deepest until they fit, and the picture says so.
  /// More are hard to read, and Graphviz takes a minute for some thousand.
  TORCH_ARG(std::int64_t, max_nodes) = 150;
  /// The direction of the arrows.
  TORCH_ARG(Direction, direction) = Direction::bottom_up;
  /// Whether parameters and buffers are separate nodes; otherwise their shapes are part of the node that
  /// reads them.
  TORCH_ARG(bool, parameters) = false;
  /// Whether arrows of gradients are drawn where gradients were kept.
  TORCH_ARG(bool, gradients) = true;
  /// Called for each node of an operation, input or output.
  TORCH_ARG(Style, style);
  /// Attributes of the whole graph, which replace the defaults.
  TORCH_ARG(Attributes, graph);
  /// Seconds after which Graphviz is ended, and `draw` begins again with half as many nodes, whatever `depth`
  /// says. If there is nothing to leave out, it throws.
  TORCH_ARG(double, time_limit) = 60;
};

}  // namespace torchtap::views::trace
