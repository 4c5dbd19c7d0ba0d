// Queries of a node.
#include <algorithm>
#include <memory>
#include <set>

#include <torchtap/base/error.hpp>
#include <torchtap/views/trace/detail/graph.hpp>

namespace torchtap::views::trace {
namespace {

using Indices = std::vector<std::int64_t>;

std::vector<Node> nodes_at(const std::shared_ptr<const detail::Graph>& graph, const Indices& positions) {
  std::vector<Node> nodes;
  for (const std::int64_t position : positions) nodes.emplace_back(graph, position);
  return nodes;
}

/// All nodes that can be reached from one along edges, in order.
Indices reached(const detail::Graph& graph, std::int64_t from, Indices detail::NodeData::*edges) {
  std::set<std::int64_t> found;
  Indices open{from};
  while (!open.empty()) {
    const std::int64_t node = open.back();
    open.pop_back();
    for (const std::int64_t next : graph.nodes[node].*edges) {
      if (found.insert(next).second) open.push_back(next);
    }
  }
  return {found.begin(), found.end()};
}

/// The nodes that share a neighbour along edges with one, without itself.
Indices sharing(const detail::Graph& graph, std::int64_t of, Indices detail::NodeData::*there,
                Indices detail::NodeData::*back) {
  std::set<std::int64_t> found;
  for (const std::int64_t common : graph.nodes[of].*there) {
    for (const std::int64_t other : graph.nodes[common].*back) found.insert(other);
  }
  found.erase(of);
  return {found.begin(), found.end()};
}

Indices of_kind(const detail::Graph& graph, const Indices& positions, NodeKind kind) {
  Indices found;
  std::copy_if(positions.begin(), positions.end(), std::back_inserter(found),
               [&](std::int64_t position) { return graph.nodes[position].kind == kind; });
  return found;
}

constexpr auto to_parents = &detail::NodeData::parents;
constexpr auto to_children = &detail::NodeData::children;

}  // namespace

const detail::NodeData& Node::data() const noexcept {
  return graph_->nodes[position_];
}

NodeKind Node::kind() const noexcept {
  return data().kind;
}
const std::string& Node::label() const& noexcept {
  return data().label;
}
std::string Node::layer_label() const {
  return label().substr(0, label().find(':'));
}
std::string Node::short_label() const {
  const std::string brief = type() + "_" + std::to_string(data().layer_of_type);
  return passes() == 1 ? brief : brief + ":" + std::to_string(pass());
}
const std::string& Node::type() const& noexcept {
  return data().type;
}
const std::string& Node::name() const& noexcept {
  return data().name;
}
const std::string& Node::function() const& noexcept {
  return data().function;
}
std::int64_t Node::layer() const noexcept {
  return data().layer;
}
std::int64_t Node::pass() const noexcept {
  return data().pass;
}
std::int64_t Node::passes() const noexcept {
  return data().passes;
}
const std::vector<std::int64_t>& Node::shape() const& noexcept {
  return data().shape;
}
at::ScalarType Node::dtype() const noexcept {
  return data().dtype;
}
at::Device Node::device() const noexcept {
  return data().device;
}
std::int64_t Node::bytes() const noexcept {
  return data().bytes;
}
bool Node::requires_grad() const noexcept {
  return data().requires_grad;
}
bool Node::saved() const noexcept {
  return data().saved;
}

at::Tensor Node::tensor() const {
  TORCH_CHECK_VALUE(saved(), "views::trace::Node::tensor: the tensor of ", label(),
                    " was not kept; name it in TraceOptions::save, or save all.");
  if (graph_->log == nullptr) return graph_->entries[position_].tensor();
  return detail::kept_tensor(graph_->log->values[data().value], label());
}

bool Node::has_gradient() const noexcept {
  if (graph_->log == nullptr || !saved()) return false;
  detail::Gradients& gradients = *graph_->log->gradients;
  const std::lock_guard lock(gradients.mutex);
  return gradients.of.find(data().value) != gradients.of.end();
}

at::Tensor Node::gradient() const {
  TORCH_CHECK_VALUE(
      has_gradient(), "views::trace::Node::gradient: no gradient of ", label(),
      " arrived; set TraceOptions::gradients, keep the tensor, and call backward on something that "
      "depends on it.");
  detail::Gradients& gradients = *graph_->log->gradients;
  const std::lock_guard lock(gradients.mutex);
  return gradients.of.at(data().value);
}

std::vector<Node> Node::parents() const {
  Indices sorted = data().parents;
  std::sort(sorted.begin(), sorted.end());
  return nodes_at(graph_, sorted);
}
std::vector<Node> Node::children() const {
  return nodes_at(graph_, data().children);
}
std::vector<Node> Node::siblings() const {
  return nodes_at(graph_, sharing(*graph_, position_, to_parents, to_children));
}
std::vector<Node> Node::spouses() const {
  return nodes_at(graph_, sharing(*graph_, position_, to_children, to_parents));
}
std::vector<Node> Node::ancestors() const {
  return nodes_at(graph_, reached(*graph_, position_, to_parents));
}
std::vector<Node> Node::descendants() const {
  return nodes_at(graph_, reached(*graph_, position_, to_children));
}
std::vector<Node> Node::input_ancestors() const {
  return nodes_at(graph_, of_kind(*graph_, reached(*graph_, position_, to_parents), NodeKind::input));
}
std::vector<Node> Node::output_descendants() const {
  return nodes_at(graph_, of_kind(*graph_, reached(*graph_, position_, to_children), NodeKind::output));
}
std::pair<std::int64_t, std::int64_t> Node::distance_from_input() const {
  return data().from_input;
}
std::pair<std::int64_t, std::int64_t> Node::distance_to_output() const {
  return data().to_output;
}

std::vector<Argument> Node::arguments() const {
  return data().arguments;
}
const std::vector<ParameterUse>& Node::parameters() const& noexcept {
  return data().parameters;
}
const std::vector<ModuleCall>& Node::modules() const& noexcept {
  return data().modules;
}
const std::vector<ModuleCall>& Node::output_of() const& noexcept {
  return data().output_of;
}
bool Node::in_place() const noexcept {
  return data().in_place;
}
bool Node::view() const noexcept {
  return data().view;
}
bool Node::random() const noexcept {
  return data().random;
}
bool Node::created_inside() const noexcept {
  return data().kind == NodeKind::operation && data().created_inside;
}
bool Node::read_by_program() const noexcept {
  return data().read_by_program;
}
std::int64_t Node::result() const noexcept {
  return data().result;
}
std::int64_t Node::results() const noexcept {
  return data().results;
}
double Node::seconds() const noexcept {
  return static_cast<double>(data().nanoseconds) * 1e-9;
}

std::string Node::source() const {
  const detail::NodeData& node = data();
  return node.frames.empty() ? node.script_source : detail::text_of(node.frames);
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> keys;
  for (const std::string& key : detail::keys_of(data())) {
    // A path that several nodes share finds no node.
    if (detail::look_up(*graph_, key).size() == 1) keys.push_back(key);
  }
  keys.push_back(std::to_string(position_));
  keys.push_back(std::to_string(position_ - static_cast<std::int64_t>(graph_->nodes.size())));
  return keys;
}

}  // namespace torchtap::views::trace
