#pragma once

// Makes boxes, frames and arrows of a history, and text in Graphviz' language of these.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace::detail {

using Attributes = DrawOptions::Attributes;

/// A rectangle around boxes: a call of a module, or with `rolled` all of its calls.
struct Frame {
  std::int64_t parent = -1;  // the frame around it, an earlier one
  Attributes attributes;
};

struct Box {
  std::int64_t frame = -1;
  Attributes attributes;
};

struct Arrow {
  std::size_t from = 0, to = 0;  // boxes
  Attributes attributes;
};

struct Picture {
  std::vector<Frame> frames;
  std::vector<Box> boxes;
  std::vector<Arrow> arrows;
  Attributes graph;
  Attributes box, arrow;  // defaults of all boxes and arrows
};

/// Throws `c10::ValueError` for a negative depth or no nodes at all, and as `DrawOptions::style` does.
Picture make_picture(const History& history, const DrawOptions& options);

std::string to_dot(const Picture& picture);

}  // namespace torchtap::views::trace::detail
