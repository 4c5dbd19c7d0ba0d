// Graphviz' language.
#include <torchtap/views/trace/detail/picture.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// `end` ends each line and says where it is: in the middle ("\\n") or on the left ("\\l").
std::string quoted(const std::string& text, const char* end = "\\n") {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '\n') {
      result += end;
    } else if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (static_cast<unsigned char>(letter) >= ' ') {
      result += letter;
    }
  }
  return result + "\"";
}

std::string list_of(const Attributes& attributes, const char* end = "\\n") {
  std::string text;
  for (const auto& [name, value] : attributes) {
    text += (text.empty() ? "" : ", ") + quoted(name) + "=" + quoted(value, end);
  }
  return "[" + text + "]";
}

class DotText {
 public:
  explicit DotText(const Picture& picture)
      : picture_(picture), boxes_in_(picture.frames.size() + 1), frames_in_(picture.frames.size() + 1) {
    for (std::size_t i = 0; i < picture.frames.size(); ++i)
      frames_in_[inside(picture.frames[i].parent)].push_back(i);
    for (std::size_t i = 0; i < picture.boxes.size(); ++i)
      boxes_in_[inside(picture.boxes[i].frame)].push_back(i);
  }

  std::string text() {
    text_ = "digraph {\n  graph " + list_of(picture_.graph) + ";\n  node " + list_of(picture_.box) +
            ";\n  edge " + list_of(picture_.arrow) + ";\n";
    contents(-1, 2);
    for (const Arrow& arrow : picture_.arrows) {
      text_ += "  n" + std::to_string(arrow.from) + " -> n" + std::to_string(arrow.to);
      text_ += (arrow.attributes.empty() ? "" : " " + list_of(arrow.attributes)) + ";\n";
    }
    return text_ + "}\n";
  }

 private:
  /// The place of a frame's contents; the last is for contents without a frame.
  std::size_t inside(std::int64_t frame) const {
    return frame < 0 ? picture_.frames.size() : static_cast<std::size_t>(frame);
  }

  void contents(std::int64_t frame, std::size_t indent) {
    const std::string spaces(indent, ' ');
    for (const std::size_t box : boxes_in_[inside(frame)]) {
      text_ += spaces + "n" + std::to_string(box) + " " + list_of(picture_.boxes[box].attributes) + ";\n";
    }
    for (const std::size_t part : frames_in_[inside(frame)]) {
      text_ += spaces + "subgraph cluster_" + std::to_string(part) + " {\n" + spaces + "  graph " +
               list_of(picture_.frames[part].attributes, "\\l") + ";\n";
      contents(static_cast<std::int64_t>(part), indent + 2);
      text_ += spaces + "}\n";
    }
  }

  const Picture& picture_;
  std::vector<std::vector<std::size_t>> boxes_in_, frames_in_;
  std::string text_;
};

}  // namespace

std::string to_dot(const Picture& picture) {
  return DotText(picture).text();
}

}  // namespace torchtap::views::trace::detail
