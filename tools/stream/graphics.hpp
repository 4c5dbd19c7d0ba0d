#pragma once

#include <cstddef>

/// The graphics that the terminal can draw.
namespace torchtap::tools::stream {

enum class Graphics { blocks, kitty, sixel };

struct Ability {
  Graphics graphics = Graphics::blocks;
  std::size_t cell_width = 8, cell_height = 16;  ///< pixels of a character
};

/// Asks the terminal on stdin and stdout, and waits for its answer for at most 0.3 s. Half blocks if it does
/// not answer, or if stdout is no terminal.
Ability ask_terminal();

}  // namespace torchtap::tools::stream
