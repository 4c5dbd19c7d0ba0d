// Turns a history into boxes, frames and arrows.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <torchtap/views/trace/detail/appearance.hpp>
#include <torchtap/views/trace/detail/boxes.hpp>
#include <torchtap/views/trace/detail/picture.hpp>

namespace torchtap::views::trace::detail {
namespace {

std::size_t slot(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// Whether the order of an operation's tensors makes no difference, so that arrows need no names.
bool commutes(const Node& node) {
  static const std::set<std::string> names{"add",         "mul",         "maximum",     "minimum",
                                           "eq",          "ne",          "logical_and", "logical_or",
                                           "logical_xor", "bitwise_and", "bitwise_or",  "bitwise_xor"};
  std::string name = node.function().substr(0, node.function().find('.'));
  name = name.substr(name.rfind(':') + 1);
  while (!name.empty() && name.back() == '_') name.pop_back();
  return names.count(name) != 0;
}

class Painter {
 public:
  Painter(const History& history, const DrawOptions& options)
      : history_(history),
        options_(options),
        choice_(history, choose_extent(history, options)),
        appearance_(history, options, choice_.extent()) {}

  Picture paint() {
    for (const Node& node : history_) place(node);
    for (const Node& node : history_) connect(node);
    drop_lonely_frames();
    for (std::size_t i = 0; i < contents_.size(); ++i) describe(i);
    for (const auto& [ends, edges] : edges_) describe(ends, edges);
    if (options_.gradients()) connect_gradients();
    picture_.graph = appearance_.of_graph();
    picture_.box = appearance_.of_boxes();
    picture_.arrow = appearance_.of_arrows();
    return std::move(picture_);
  }

 private:
  /// The node or nodes of a box.
  struct Content {
    std::vector<Node> nodes;  // in order
    bool module = false;      // they are drawn as a module
    const ParameterUse* parameter = nullptr;
    std::int64_t innermost = -1;  // the frame of the call that it ran in
  };
  using Ends = std::pair<std::size_t, std::size_t>;
  /// For each argument along which two boxes are connected, the passes that are.
  using Edges = std::map<std::string, std::set<std::int64_t>>;

  /// The frame of the first `depth` calls.
  std::int64_t frame_of(const std::vector<ModuleCall>& calls, std::size_t depth) {
    std::int64_t frame = -1;
    for (std::size_t i = 0; i < depth; ++i) {
      const auto key = std::make_pair(frame, choice_.name(calls[i]));
      const auto [found, added] = frames_.emplace(key, static_cast<std::int64_t>(picture_.frames.size()));
      if (added) picture_.frames.push_back({frame, appearance_.of_frame(calls[i])});
      frame = found->second;
    }
    return frame;
  }

  std::size_t box_called(const std::string& name, std::int64_t frame) {
    const auto [found, added] = boxes_.emplace(name, picture_.boxes.size());
    if (added) {
      picture_.boxes.push_back({frame, {}});
      contents_.emplace_back();
      contents_.back().innermost = frame;
    }
    return found->second;
  }

  void place(const Node& node) {
    const Node first = choice_.first(node);
    const std::int64_t frame = frame_of(first.modules(), choice_.frames(first));
    const std::size_t box = box_called(choice_.box(node), frame);
    contents_[box].nodes.push_back(node);
    contents_[box].module = choice_.collapsed(first);
    box_of_node_.push_back(box);
    if (!options_.parameters() || contents_[box].module) return;
    for (const ParameterUse& use : node.parameters()) {
      const std::size_t parameter = box_called("parameter " + use.path, frame);
      contents_[parameter].parameter = &use;
      edges_[{parameter, box}][""].insert(node.pass());
    }
  }

  void connect(const Node& node) {
    const std::vector<Argument> arguments = node.arguments();
    std::ptrdiff_t tensors = 0;
    for (const Argument& argument : arguments) {
      tensors += std::count_if(argument.nodes.begin(), argument.nodes.end(),
                               [](std::int64_t parent) { return parent >= 0; });
    }
    const bool named = tensors > 1 && !commutes(node);
    std::set<std::int64_t> connected;
    for (const Argument& argument : arguments) {
      for (std::size_t i = 0; i < argument.nodes.size(); ++i) {
        if (argument.nodes[i] < 0) continue;
        connected.insert(argument.nodes[i]);
        const std::string place = argument.nodes.size() > 1 ? "[" + std::to_string(i) + "]" : "";
        connect(argument.nodes[i], node, named ? argument.name + place : "");
      }
    }
    // The edges of outputs, and of tensors that were written to unseen.
    for (const Node& parent : node.parents()) {
      if (connected.count(parent.position()) == 0) connect(parent.position(), node, "");
    }
  }

  void connect(std::int64_t parent, const Node& node, const std::string& argument) {
    const std::size_t from = box_of_node_[slot(parent)], to = box_of_node_[slot(node.position())];
    if (!contents_[to].module) {
      edges_[{from, to}][argument].insert(node.pass());
    } else if (from != to) {
      edges_[{from, to}][""];
    }
  }

  /// A frame around one operation says less than its path on the box does.
  void drop_lonely_frames() {
    std::vector<std::size_t> inside(picture_.frames.size(), 0);
    std::vector<std::size_t> only(picture_.frames.size(), 0);
    std::vector<bool> kept(picture_.frames.size(), true);
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) {
      if (picture_.boxes[i].frame < 0) continue;
      ++inside[slot(picture_.boxes[i].frame)];
      only[slot(picture_.boxes[i].frame)] = i;
    }
    for (std::size_t i = picture_.frames.size(); i-- > 0;) {
      const std::int64_t parent = picture_.frames[i].parent;
      kept[i] = inside[i] != 1;
      if (!kept[i]) picture_.boxes[only[i]].frame = parent;
      if (parent < 0) continue;
      // A kept box counts as two, so that the frame around it is kept.
      inside[slot(parent)] += kept[i] ? 2 : 1;
      only[slot(parent)] = only[i];
    }
    std::vector<std::int64_t> number(picture_.frames.size(), -1);
    std::vector<Frame> frames;
    for (std::size_t i = 0; i < picture_.frames.size(); ++i) {
      Frame& frame = picture_.frames[i];
      if (frame.parent >= 0) frame.parent = number[slot(frame.parent)];
      if (!kept[i]) continue;
      number[i] = static_cast<std::int64_t>(frames.size());
      frames.push_back(std::move(frame));
    }
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) {
      std::int64_t& frame = picture_.boxes[i].frame;
      const std::int64_t innermost = contents_[i].innermost;
      framed_.push_back(frame == innermost);
      if (frame >= 0) frame = number[slot(frame)];
    }
    picture_.frames = std::move(frames);
  }

  void describe(std::size_t box) {
    const Content& content = contents_[box];
    Attributes& attributes = picture_.boxes[box].attributes;
    if (content.parameter != nullptr) {
      attributes = appearance_.of_parameter(*content.parameter);
    } else if (content.module) {
      attributes = appearance_.of_module(choice_.module(choice_.first(content.nodes.front())), content.nodes);
    } else {
      attributes = appearance_.of_nodes(content.nodes, framed_[box]);
    }
  }

  /// An arrow says which arguments it stands for, and which passes if not all of them have it.
  void describe(const Ends& ends, const Edges& edges) {
    constexpr std::size_t most = 24;  // letters
    const std::size_t passes = contents_[ends.second].nodes.size();
    std::string text;
    for (const auto& [argument, numbers] : edges) {
      std::string part = argument;
      if (choice_.rolled() && !numbers.empty() && numbers.size() < passes) {
        std::string ranges = (numbers.size() == 1 ? "pass " : "passes ") + ranges_text(numbers);
        if (ranges.size() > most)
          ranges = std::to_string(numbers.size()) + " of " + std::to_string(passes) + " passes";
        part += (part.empty() ? "" : ", ") + ranges;
      }
      if (!part.empty()) text += (text.empty() ? "" : "\n") + part;
    }
    picture_.arrows.push_back({ends.first, ends.second, appearance_.of_arrow(text)});
  }

  void connect_gradients() {
    std::set<Ends> drawn;
    for (const Node& node : history_) {
      if (!node.has_gradient()) continue;
      for (const Node& parent : node.parents()) {
        const Ends back{box_of_node_[slot(node.position())], box_of_node_[slot(parent.position())]};
        if (back.first == back.second || !parent.has_gradient() || !drawn.insert(back).second) continue;
        picture_.arrows.push_back({back.first, back.second, appearance_.of_gradient()});
      }
    }
  }

  const History& history_;
  const DrawOptions& options_;
  const Boxes choice_;
  const Appearance appearance_;
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> frames_;
  std::unordered_map<std::string, std::size_t> boxes_;
  std::vector<Content> contents_;  // of each box
  std::vector<bool> framed_;       // whether the innermost module of a box has a frame
  std::vector<std::size_t> box_of_node_;
  std::map<Ends, Edges> edges_;
  Picture picture_;
};

}  // namespace

Picture make_picture(const History& history, const DrawOptions& options) {
  return Painter(history, options).paint();
}

}  // namespace torchtap::views::trace::detail
