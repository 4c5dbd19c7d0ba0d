// Joins nodes of a history in one box of its picture: nodes of a collapsed module, and passes of one layer.
#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <torchtap/views/trace/detail/boxes.hpp>

namespace torchtap::views::trace::detail {
namespace {

std::size_t count_boxes(const History& history, const Extent& extent, bool parameters) {
  const Boxes choice(history, extent);
  std::unordered_set<std::string> names;
  for (const Node& node : history) {
    names.insert(choice.box(node));
    if (!parameters || choice.collapsed(choice.first(node))) continue;
    for (const ParameterUse& use : node.parameters()) names.insert("parameter " + use.path);
  }
  return names.size();
}

std::int64_t deepest(const History& history) {
  std::size_t depth = 0;
  for (const Node& node : history) depth = std::max(depth, node.modules().size());
  return static_cast<std::int64_t>(depth);
}

}  // namespace

Extent choose_extent(const History& history, const DrawOptions& options) {
  TORCH_CHECK_VALUE(!options.depth() || *options.depth() >= 0, "views::trace::DrawOptions: depth is ",
                    *options.depth(),
                    "; it should be 0 for the model as one box, 1 for its children, or more.");
  TORCH_CHECK_VALUE(options.max_nodes() > 0, "views::trace::DrawOptions: max_nodes is ", options.max_nodes(),
                    "; it should be positive.");
  Extent extent{options.rolled(), options.depth(), 0, false};
  if (extent.depth) return extent;
  const auto fits = [&](bool rolled, std::optional<std::int64_t> depth) {
    extent.rolled = rolled;
    extent.depth = depth;
    const std::size_t boxes = count_boxes(history, extent, options.parameters());
    if (extent.wanted == 0) extent.wanted = boxes;
    return boxes <= static_cast<std::size_t>(options.max_nodes());
  };
  if (fits(options.rolled(), {})) return extent;
  extent.reduced = true;
  const std::int64_t most = deepest(history);
  for (std::int64_t depth = most; depth > 0; --depth) {
    if (fits(options.rolled(), depth)) return extent;
  }
  if (fits(true, {})) return extent;
  for (std::int64_t depth = most; depth > 0; --depth) {
    if (fits(true, depth)) return extent;
  }
  return extent;  // the least that still shows what the model does
}

Boxes::Boxes(const History& history, Extent extent) : history_(history), extent_(extent) {
  if (!extent_.rolled) return;
  first_of_layer_.assign(static_cast<std::size_t>(history.layers()), -1);
  for (const Node& node : history) {
    std::int64_t& first = first_of_layer_[static_cast<std::size_t>(node.layer())];
    if (first < 0) first = node.position();
  }
}

Node Boxes::first(const Node& node) const {
  return extent_.rolled ? history_[first_of_layer_[static_cast<std::size_t>(node.layer())]] : node;
}

bool Boxes::collapsed(const Node& node) const noexcept {
  const bool inside = node.kind() == NodeKind::operation || node.kind() == NodeKind::outside;
  return inside && extent_.depth && static_cast<std::int64_t>(node.modules().size()) >= *extent_.depth;
}

std::size_t Boxes::frames(const Node& node) const noexcept {
  if (!collapsed(node)) return node.modules().size();
  return static_cast<std::size_t>(std::max<std::int64_t>(*extent_.depth - 1, 0));
}

const ModuleCall* Boxes::module(const Node& node) const noexcept {
  return *extent_.depth == 0 ? nullptr : &node.modules()[static_cast<std::size_t>(*extent_.depth - 1)];
}

std::string Boxes::box(const Node& node) const {
  const Node drawn = first(node);
  if (!collapsed(drawn)) return std::to_string(drawn.position());
  const ModuleCall* call = module(drawn);
  return call == nullptr ? "model" : "module " + name(*call);
}

std::string Boxes::name(const ModuleCall& call) const {
  return extent_.rolled ? call.path : call.path + ":" + std::to_string(call.call);
}

}  // namespace torchtap::views::trace::detail
