#pragma once

// Joins nodes of a history in one box of its picture.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace::detail {

/// The part of a history that is drawn.
struct Extent {
  bool rolled = false;
  std::optional<std::int64_t> depth;  // as `DrawOptions::depth`
  std::size_t wanted = 0;             // how many boxes what was asked for would have
  bool reduced = false;               // that was more than `DrawOptions::max_nodes`
};

/// The boxes that `options` ask for, or fewer if `max_nodes` demands it: modules collapse from the deepest;
/// if the nodes outside of modules are still too many, passes are drawn as one.
Extent choose_extent(const History& history, const DrawOptions& options);

class Boxes {
 public:
  Boxes(const History& history, Extent extent);

  const Extent& extent() const noexcept { return extent_; }
  bool rolled() const noexcept { return extent_.rolled; }

  /// The node that stands for all of its layer, if passes are drawn as one.
  Node first(const Node& node) const;
  /// Whether a node, the first of its layer, is drawn as a part of a module.
  bool collapsed(const Node& node) const noexcept;
  /// How many of its modules are drawn as frames around its box.
  std::size_t frames(const Node& node) const noexcept;
  /// The call as which a collapsed node is drawn; null for the whole model.
  const ModuleCall* module(const Node& node) const noexcept;
  /// A name for the box of a node.
  std::string box(const Node& node) const;
  /// A name for a call of a module, which other calls share if they are drawn as one.
  std::string name(const ModuleCall& call) const;

 private:
  History history_;
  Extent extent_;
  std::vector<std::int64_t> first_of_layer_;
};

}  // namespace torchtap::views::trace::detail
