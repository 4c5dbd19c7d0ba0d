// Derives from nodes and their parents: children, distances, labels, and the names that find a node.
#include <algorithm>
#include <set>

#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/views/trace/detail/graph.hpp>

namespace torchtap::views::trace::detail {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

/// Makes `range` include the paths of `other` and one more edge.
void extend(Range& range, const Range& other) {
  if (other.first < 0) return;
  range.first = range.first < 0 ? other.first + 1 : std::min(range.first, other.first + 1);
  range.second = std::max(range.second, other.second + 1);
}

void find_distances(Graph& graph) {
  for (NodeData& node : graph.nodes) {
    node.from_input = node.kind == NodeKind::input ? Range{0, 0} : Range{-1, -1};
    for (const std::int64_t parent : node.parents) extend(node.from_input, graph.nodes[parent].from_input);
  }
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    node->to_output = node->kind == NodeKind::output ? Range{0, 0} : Range{-1, -1};
    for (const std::int64_t child : node->children) extend(node->to_output, graph.nodes[child].to_output);
  }
}

void find_children(Graph& graph) {
  for (NodeData& node : graph.nodes) node.children.clear();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const std::int64_t parent : graph.nodes[i].parents) {
      graph.nodes[parent].children.push_back(static_cast<std::int64_t>(i));
    }
  }
}

/// "conv2d_3_7": counts layers of the type, from 1, and layers, from 0.
void label(Graph& graph) {
  graph.layers.clear();
  std::map<std::string, std::int64_t> of_type;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    NodeData& node = graph.nodes[i];
    if (static_cast<std::size_t>(node.layer) >= graph.layers.size()) {
      graph.layers.resize(node.layer + 1);
      node.layer_of_type = ++of_type[node.type];
    } else {
      node.layer_of_type = graph.nodes[graph.layers[node.layer].front()].layer_of_type;
    }
    graph.layers[node.layer].push_back(static_cast<std::int64_t>(i));
  }
  for (NodeData& node : graph.nodes) {
    node.passes = static_cast<std::int64_t>(graph.layers[node.layer].size());
    node.label = node.type + "_" + std::to_string(node.layer_of_type) + "_" + std::to_string(node.layer);
    if (node.passes > 1) node.label += ":" + std::to_string(node.pass);
  }
}

std::string without_pass(const std::string& label) {
  return label.substr(0, label.find(':'));
}

bool is_number(const std::string& text) {
  const std::size_t start = !text.empty() && text[0] == '-' ? 1 : 0;
  return text.size() > start && text.size() - start < 18 &&
         text.find_first_not_of("0123456789", start) == std::string::npos;
}

}  // namespace

std::vector<std::string> keys_of(const NodeData& node) {
  const std::string pass = ":" + std::to_string(node.pass);
  const std::string brief = node.type + "_" + std::to_string(node.layer_of_type);
  std::vector<std::string> keys{node.label};
  const auto add = [&](const std::string& key) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  if (node.passes == 1) add(brief);
  add(brief + pass);
  add(without_pass(node.label) + pass);
  if (!node.name.empty()) add(node.name);
  for (const ModuleCall& call : node.output_of) {
    if (call.call == 0) add(call.path);
    add(call.path + ":" + std::to_string(call.call + 1));
  }
  return keys;
}

void connect(Graph& graph) {
  find_children(graph);
  find_distances(graph);
  label(graph);
  graph.names.clear();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeData& node = graph.nodes[i];
    const auto add = [&](const std::string& name) {
      auto& found = graph.names[name];
      const auto position = static_cast<std::int64_t>(i);
      if (found.empty() || found.back() != position) found.push_back(position);
    };
    for (const std::string& key : keys_of(node)) add(key);
    for (const ModuleCall& call : node.output_of) add(call.path);  // of a later call, too
    if (node.passes == 1) continue;
    add(without_pass(node.label));
    add(node.type + "_" + std::to_string(node.layer_of_type));
  }
}

std::vector<std::int64_t> look_up(const Graph& graph, const std::string& name) {
  const auto exact = graph.names.find(name);
  if (exact != graph.names.end()) return exact->second;
  const auto size = static_cast<std::int64_t>(graph.nodes.size());
  if (is_number(name)) {
    const std::int64_t number = std::stoll(name);
    if (number >= size || number < -size) return {};
    return {number < 0 ? size + number : number};
  }
  if (name.empty()) return {};
  std::set<std::int64_t> parts;
  for (const auto& [key, positions] : graph.names) {
    if (key.find(name) != std::string::npos) parts.insert(positions.begin(), positions.end());
  }
  return {parts.begin(), parts.end()};
}

std::vector<std::int64_t> look_up_all(const Graph& graph, const std::string& name) {
  if (!base::is_glob(name) || graph.names.count(name) > 0) return look_up(graph, name);
  std::set<std::int64_t> found;
  for (const auto& [key, positions] : graph.names) {
    if (base::matches_glob(name, key)) found.insert(positions.begin(), positions.end());
  }
  return {found.begin(), found.end()};
}

std::string instead_of(const Graph& graph, const std::string& name) {
  if (is_number(name)) return c10::str("there are ", graph.nodes.size(), " nodes, from 0 or from -1 back");
  std::vector<std::string> names;
  for (const NodeData& node : graph.nodes) {
    names.push_back(node.label);
    for (const ModuleCall& call : node.output_of) names.push_back(call.path);
  }
  return "the nearest are " + base::quoted(base::nearest(name, names));
}

}  // namespace torchtap::views::trace::detail
