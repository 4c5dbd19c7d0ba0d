#include <cstdio>

#include <torchtap/views/pictures/terminal.hpp>

namespace torchtap::views::pictures {

std::vector<std::string> half_blocks(const Image& image) {
  std::vector<std::string> lines;
  char escape[64];
  for (std::size_t y = 0; y < image.height; y += 2) {
    std::string line;
    for (std::size_t x = 0; x < image.width; ++x) {
      const std::uint8_t* const upper = image.at(x, y);
      const std::uint8_t* const lower = y + 1 < image.height ? image.at(x, y + 1) : nullptr;
      std::snprintf(escape, sizeof escape, "\033[38;2;%d;%d;%dm", upper[0], upper[1], upper[2]);
      line += escape;
      if (lower != nullptr) {
        std::snprintf(escape, sizeof escape, "\033[48;2;%d;%d;%dm", lower[0], lower[1], lower[2]);
        line += escape;
      } else {
        line += "\033[49m";
      }
      line += "\u2580";
    }
    lines.push_back(line + "\033[0m");
  }
  return lines;
}

}  // namespace torchtap::views::pictures
