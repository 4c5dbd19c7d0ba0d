#pragma once

// Makes the appearance and text of a picture's boxes, frames and arrows.

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <torchtap/views/trace/detail/boxes.hpp>
#include <torchtap/views/trace/detail/picture.hpp>

namespace torchtap::views::trace::detail {

/// The looks of a picture's boxes and arrows.
class Appearance {
 public:
  Appearance(const History& history, const DrawOptions& options, const Extent& extent);

  /// A box for one node, or for several passes. `framed`: the module that it ran in is drawn around it.
  Attributes of_nodes(const std::vector<Node>& nodes, bool framed) const;
  /// A box for a call of a module, null for the model, with the nodes in it.
  Attributes of_module(const ModuleCall* call, const std::vector<Node>& nodes) const;
  Attributes of_parameter(const ParameterUse& use) const;
  Attributes of_frame(const ModuleCall& call) const;
  Attributes of_arrow(const std::string& text) const;
  Attributes of_gradient() const;
  Attributes of_graph() const;
  /// Attributes of all boxes and all arrows.
  Attributes of_boxes() const;
  Attributes of_arrows() const;

 private:
  std::string call_text(const ModuleCall& call) const;
  std::string caption() const;

  const History& history_;
  const DrawOptions& options_;
  const Extent& extent_;
  std::unordered_map<std::string, const ModuleSummary*> modules_;
};

/// Numbers in short: "1", "2–20", "1, 3, 5–7".
std::string ranges_text(const std::set<std::int64_t>& numbers);

}  // namespace torchtap::views::trace::detail
