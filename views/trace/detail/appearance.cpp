// Makes the appearance and text of a picture's boxes, frames and arrows.
#include <algorithm>
#include <iterator>

#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/trace/detail/appearance.hpp>
#include <torchtap/views/trace/detail/units.hpp>

namespace torchtap::views::trace::detail {
namespace {

// The colours of TorchLens, whose users know them.
constexpr const char* input_colour = "#98FB98";
constexpr const char* output_colour = "#FF9999";
constexpr const char* parameter_colour = "#E6E6E6";
constexpr const char* buffer_colour = "#888888";
constexpr const char* read_colour = "#F7D460";
constexpr const char* gradient_colour = "#9197F6";

constexpr const char* font = "Helvetica,Arial,sans-serif";
constexpr const char* times = "\u00d7";
constexpr const char* dash = "\u2013";

/// "int64 8x12 (768 B)"; the usual dtype is left out.
std::string tensor_text(const Node& node) {
  const std::string dtype = node.dtype() == at::kFloat ? "" : storage::dtype_name(node.dtype()) + " ";
  return dtype + shape_text(node.shape()) + " (" + bytes_text(node.bytes()) + ")";
}

/// The shapes of the first and the last, if they differ: passes of a layer may have different shapes.
std::string tensors_text(const std::vector<Node>& nodes) {
  std::string first = tensor_text(nodes.front());
  for (const Node& node : nodes) {
    if (tensor_text(node) != first) return first + " " + dash + " " + tensor_text(nodes.back());
  }
  return first;
}

/// Adds a line; nothing if it is empty.
void add(std::string& text, const std::string& line) {
  if (!line.empty()) text += (text.empty() ? "" : "\n") + line;
}

/// "weight 64x3x11x11, bias 64", in lines of some forty letters.
std::string parameters_text(const Node& node) {
  constexpr std::size_t most = 6, width = 40;
  const auto& uses = node.parameters();
  std::string text, line;
  for (std::size_t i = 0; i < std::min(uses.size(), most); ++i) {
    const std::string next =
        uses[i].path.substr(uses[i].path.rfind('.') + 1) + " " + shape_text(uses[i].shape);
    if (!line.empty() && line.size() + next.size() > width) {
      add(text, line + ",");
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + next;
  }
  if (uses.size() > most) line += " and " + std::to_string(uses.size() - most) + " more";
  add(text, line);
  return text;
}

/// The tooltip of the box in a browser.
std::string tooltip_of(const Node& node) {
  if (node.function().empty()) return node.label();
  constexpr std::size_t most = 400;
  std::string text;
  for (const Argument& argument : node.arguments()) {
    text += (text.empty() ? "" : ", ") + argument.name + "=" + argument.text;
  }
  if (text.size() > most) text = text.substr(0, most) + "...";
  return node.function() + "(" + text + ")";
}

std::string colour_of(const Node& node) {
  if (node.kind() == NodeKind::input) return input_colour;
  if (node.kind() == NodeKind::output) return output_colour;
  if (node.read_by_program()) return read_colour;
  return node.parameters().empty() ? "white" : parameter_colour;
}

}  // namespace

std::string ranges_text(const std::set<std::int64_t>& numbers) {
  std::string text;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    for (auto next = std::next(last); next != numbers.end() && *next == *last + 1; ++next) last = next;
    text += (text.empty() ? "" : ", ") + std::to_string(*first);
    if (last != first) text += dash + std::to_string(*last);
    first = std::next(last);
  }
  return text;
}

Appearance::Appearance(const History& history, const DrawOptions& options, const Extent& extent)
    : history_(history), options_(options), extent_(extent) {
  for (const ModuleSummary& module : history.modules()) modules_.emplace(module.path, &module);
}

/// "features.6", or "features.6:2" for the second of several calls.
std::string Appearance::call_text(const ModuleCall& call) const {
  const auto found = modules_.find(call.path);
  const std::int64_t calls = found == modules_.end() ? 1 : found->second->calls;
  if (calls <= 1) return call.path;
  return extent_.rolled ? call.path + " " + times + std::to_string(calls)
                        : call.path + ":" + std::to_string(call.call + 1);
}

Attributes Appearance::of_nodes(const std::vector<Node>& nodes, bool framed) const {
  const Node& node = nodes.front();
  std::string text = extent_.rolled ? node.layer_label() : node.label();
  if (nodes.size() > 1) text += " " + std::string(times) + std::to_string(nodes.size());
  add(text, tensors_text(nodes));
  if (!options_.parameters()) add(text, parameters_text(node));
  if (!framed && !node.modules().empty()) {
    const ModuleCall& innermost = node.modules().back();
    add(text, "@" + (extent_.rolled ? innermost.path : call_text(innermost)));
  }
  const bool fed = std::any_of(nodes.begin(), nodes.end(),
                               [](const Node& pass) { return pass.distance_from_input().first >= 0; });
  const bool returned = !node.output_of().empty() || node.kind() != NodeKind::operation;
  Attributes attributes{{"label", text},
                        {"shape", returned ? "box" : "ellipse"},
                        {"style", fed ? "filled" : "filled,dashed"},
                        {"fillcolor", colour_of(node)},
                        {"tooltip", tooltip_of(node)}};
  if (options_.style()) options_.style()(node, attributes);
  return attributes;
}

Attributes Appearance::of_module(const ModuleCall* call, const std::vector<Node>& nodes) const {
  std::string text = call != nullptr            ? call_text(*call) + " (" + call->type + ")"
                     : history_.model().empty() ? "model"
                                                : history_.model();
  std::set<std::int64_t> parts;
  std::vector<std::string> tensors;
  for (const Node& node : nodes) {
    if (node.result() == 0) parts.insert(extent_.rolled ? node.layer() : node.position());
    const auto& calls = node.output_of();
    const bool returned =
        call != nullptr && std::any_of(calls.begin(), calls.end(),
                                       [&](const ModuleCall& other) { return other.path == call->path; });
    const std::string tensor = returned ? tensor_text(node) : "";
    if (returned && std::find(tensors.begin(), tensors.end(), tensor) == tensors.end())
      tensors.push_back(tensor);
  }
  constexpr std::size_t most = 3;
  for (std::size_t i = 0; i < std::min(tensors.size(), most); ++i) add(text, tensors[i]);
  if (tensors.size() > most)
    add(text, "and " + counted(static_cast<std::int64_t>(tensors.size() - most), "other shape"));
  add(text, counted(static_cast<std::int64_t>(parts.size()), extent_.rolled ? "layer" : "operation"));
  const auto found = modules_.find(call == nullptr ? "" : call->path);
  const std::int64_t parameters = found == modules_.end() ? 0 : found->second->parameters;
  if (parameters > 0) add(text, counted(parameters, "parameter"));
  return {{"label", text},
          {"shape", "box3d"},
          {"margin", "0.15,0.1"},
          {"style", "filled"},
          {"fillcolor", parameters > 0 ? parameter_colour : "white"}};
}

Attributes Appearance::of_parameter(const ParameterUse& use) const {
  std::string text = use.path;
  add(text, shape_text(use.shape) + " (" + bytes_text(use.bytes) + ")" +
                (use.buffer || use.trainable ? "" : ", frozen"));
  return {{"label", text},
          {"shape", "note"},
          {"style", "filled"},
          {"fillcolor", use.buffer ? buffer_colour : parameter_colour},
          {"fontcolor", use.buffer ? "white" : "black"}};
}

Attributes Appearance::of_frame(const ModuleCall& call) const {
  // In two lines, so that arrows through the middle of the frame miss it.
  return {{"label", call_text(call) + "\n(" + call.type + ")\n"},
          {"style", "rounded,filled"},
          {"color", "#A0A0A0"},
          {"fillcolor", "#0000000A"}};
}

Attributes Appearance::of_arrow(const std::string& text) const {
  return text.empty() ? Attributes{} : Attributes{{"label", text}};
}

Attributes Appearance::of_gradient() const {
  // Gradients run against the order of the picture, which they should not change.
  return {{"color", gradient_colour}, {"constraint", "false"}};
}

std::string Appearance::caption() const {
  std::int64_t tensors = 0, elements = 0, bytes = 0;
  for (const ParameterUse& use : history_.parameters()) {
    if (use.buffer) continue;
    ++tensors;
    elements += use.elements;
    bytes += use.bytes;
  }
  std::string text = history_.model().empty() ? "" : history_.model() + ": ";
  text += counted(history_.operations(), "operation") + ", " + counted(history_.size(), "tensor") + " (" +
          bytes_text(history_.bytes()) + ")";
  if (tensors > 0) {
    text += ", " + counted(elements, "parameter") + " in " + counted(tensors, "tensor") + " (" +
            bytes_text(bytes) + ")";
  }
  if (extent_.reduced) {
    std::string less;
    if (extent_.depth) less = "modules at depth " + std::to_string(*extent_.depth) + " as one box";
    if (extent_.rolled && !options_.rolled())
      less += std::string(less.empty() ? "" : ", ") + "all passes of a layer as one";
    add(text, "Reduced from " + counted(static_cast<std::int64_t>(extent_.wanted), "node") + ": " + less);
  }
  if (!history_.error().empty()) add(text, "Ended early: " + history_.error());
  return text;
}

Attributes Appearance::of_graph() const {
  const auto direction = options_.direction();
  Attributes attributes{{"rankdir", direction == Direction::bottom_up  ? "BT"
                                    : direction == Direction::top_down ? "TB"
                                                                       : "LR"},
                        {"label", caption()},
                        {"labelloc", "t"},
                        {"labeljust", "l"},
                        {"fontname", font},
                        {"fontsize", "11"}};
  for (const auto& [name, value] : options_.graph()) attributes[name] = value;
  return attributes;
}

Attributes Appearance::of_boxes() const {
  return {{"fontname", font}, {"fontsize", "10"}, {"height", "0.3"}, {"margin", "0.12,0.06"}};
}

Attributes Appearance::of_arrows() const {
  return {{"fontname", font}, {"fontsize", "9"}, {"arrowsize", "0.7"}, {"color", "#555555"}};
}

}  // namespace torchtap::views::trace::detail
