// Answers questions about a history, and finds nodes in it.
#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace {

std::int64_t History::size() const noexcept {
  return static_cast<std::int64_t>(graph_->nodes.size());
}

History::Iterator History::begin() const noexcept {
  return {graph_, 0};
}

History::Iterator History::end() const noexcept {
  return {graph_, size()};
}

Node History::operator[](std::int64_t position) const {
  TORCH_CHECK_INDEX(position >= -size() && position < size(), "views::trace::History: position ", position,
                    " was asked for; the history has ", size(), " nodes, from 0 or from -1 back.");
  return {graph_, position < 0 ? size() + position : position};
}

Node History::operator[](const std::string& name) const {
  const auto found = detail::look_up(*graph_, name);
  TORCH_CHECK_INDEX(!found.empty(), "views::trace::History: \"", name, "\" finds nothing; ",
                    detail::instead_of(*graph_, name), ".");
  if (found.size() == 1) return {graph_, found.front()};
  std::vector<std::string> labels;
  for (const std::int64_t position : found) {
    if (labels.size() == 5) break;
    labels.push_back(graph_->nodes[position].label);
  }
  // A layer with several passes, a module that was called several times, or one with several outputs.
  const bool calls = name.find(':') == std::string::npos && graph_->names.count(name) > 0;
  TORCH_CHECK_INDEX(false, "views::trace::History: \"", name, "\" finds ", found.size(), " nodes, ",
                    base::quoted(labels), found.size() > labels.size() ? " and more" : "",
                    calls ? "; add the pass (\"" + name + ":1\"), or ask by label." : "; ask by label.");
}

bool History::contains(const std::string& name) const noexcept {
  return detail::look_up(*graph_, name).size() == 1;
}

std::vector<Node> History::find(const std::string& pattern) const {
  std::vector<Node> nodes;
  for (const std::int64_t position : detail::look_up_all(*graph_, pattern))
    nodes.emplace_back(graph_, position);
  return nodes;
}

std::vector<Node> History::inputs() const {
  std::vector<Node> nodes;
  for (const Node& node : *this) {
    if (node.kind() == NodeKind::input) nodes.push_back(node);
  }
  return nodes;
}

std::vector<Node> History::outputs() const {
  std::vector<Node> nodes;
  for (const Node& node : *this) {
    if (node.kind() == NodeKind::output) nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::string> History::labels() const {
  std::vector<std::string> labels;
  for (const detail::NodeData& node : graph_->nodes) labels.push_back(node.label);
  return labels;
}

std::int64_t History::operations() const noexcept {
  return graph_->operations;
}

std::int64_t History::layers() const noexcept {
  return static_cast<std::int64_t>(graph_->layers.size());
}

std::vector<Node> History::passes(std::int64_t layer) const {
  TORCH_CHECK_INDEX(layer >= 0 && layer < layers(), "views::trace::History::passes: layer ", layer,
                    " was asked for; the history has ", layers(), ".");
  std::vector<Node> nodes;
  for (const std::int64_t position : graph_->layers[layer]) nodes.emplace_back(graph_, position);
  return nodes;
}

std::int64_t History::bytes() const noexcept {
  std::int64_t bytes = 0;
  for (const detail::NodeData& node : graph_->nodes) bytes += node.bytes;
  return bytes;
}

std::int64_t History::saved() const noexcept {
  return std::count_if(graph_->nodes.begin(), graph_->nodes.end(),
                       [](const detail::NodeData& node) { return node.saved; });
}

std::int64_t History::saved_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < graph_->nodes.size(); ++i) {
    const detail::NodeData& node = graph_->nodes[i];
    if (!node.saved) continue;
    if (graph_->log == nullptr) {
      bytes += node.bytes;
      continue;
    }
    const at::Tensor& kept = graph_->log->values[node.value].kept;
    bytes += kept.is_nested() ? 0 : kept.numel() * static_cast<std::int64_t>(kept.element_size());
  }
  return bytes;
}

std::int64_t History::dropped() const noexcept {
  return graph_->dropped;
}
std::int64_t History::copied() const noexcept {
  return graph_->copied;
}
const std::string& History::model() const& noexcept {
  return graph_->model;
}
const std::vector<ModuleSummary>& History::modules() const& noexcept {
  return graph_->modules;
}
const std::vector<std::string>& History::unreached_modules() const& noexcept {
  return graph_->unreached;
}
const std::vector<ParameterUse>& History::parameters() const& noexcept {
  return graph_->parameters;
}
double History::seconds() const noexcept {
  return static_cast<double>(graph_->nanoseconds) * 1e-9;
}
double History::operation_seconds() const noexcept {
  return static_cast<double>(graph_->operation_nanoseconds) * 1e-9;
}
const std::string& History::error() const& noexcept {
  return graph_->error;
}

}  // namespace torchtap::views::trace
