#include "terminal.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

namespace torchtap::tools::pictures {
namespace {

constexpr std::size_t kChunk = 4096;   // characters in a message to kitty
constexpr std::size_t kColours = 256;  // of a sixel picture
constexpr std::size_t kSixel = 6;      // pixels in a character of it, one below the other

std::string base64(const std::vector<std::uint8_t>& bytes) {
  static const char* const kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) { return i + k < bytes.size() ? bytes[i + k] : 0U; };
    const unsigned bits = at(0) << 16 | at(1) << 8 | at(2);
    text += kLetters[bits >> 18 & 63];
    text += kLetters[bits >> 12 & 63];
    text += i + 1 < bytes.size() ? kLetters[bits >> 6 & 63] : '=';
    text += i + 2 < bytes.size() ? kLetters[bits & 63] : '=';
  }
  return text;
}

/// The number of each pixel's colour, and the colours.
struct Indexed {
  std::vector<std::size_t> pixels;
  std::vector<Colour> colours;
};

std::size_t nearest(const std::vector<Colour>& colours, const Colour& colour) {
  const auto distance = [&](const Colour& other) {
    int sum = 0;
    for (std::size_t i = 0; i < 3; ++i) sum += (other[i] - colour[i]) * (other[i] - colour[i]);
    return sum;
  };
  const auto least = std::min_element(colours.begin(), colours.end(), [&](const Colour& a, const Colour& b) {
    return distance(a) < distance(b);
  });
  return static_cast<std::size_t>(least - colours.begin());
}

Indexed indexed(const Image& image) {
  std::map<Colour, std::size_t> counts;
  const auto colour_of = [&](std::size_t i) {
    return Colour{image.rgb[3 * i], image.rgb[3 * i + 1], image.rgb[3 * i + 2]};
  };
  for (std::size_t i = 0; i < image.width * image.height; ++i) ++counts[colour_of(i)];
  std::vector<std::pair<std::size_t, Colour>> order;
  order.reserve(counts.size());
  for (const auto& [colour, count] : counts) order.emplace_back(count, colour);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Indexed all;
  for (std::size_t i = 0; i < std::min(order.size(), kColours); ++i) all.colours.push_back(order[i].second);
  std::map<Colour, std::size_t> numbers;
  for (const auto& entry : order) numbers[entry.second] = nearest(all.colours, entry.second);
  for (std::size_t i = 0; i < image.width * image.height; ++i) all.pixels.push_back(numbers[colour_of(i)]);
  return all;
}

/// The characters of a row of six lines in one colour, with repetitions counted.
std::string sixels(const Indexed& picture, std::size_t width, std::size_t height, std::size_t top,
                   std::size_t colour) {
  std::string line;
  std::size_t repeated = 0;
  char last = 0;
  const auto flush = [&] {
    if (repeated > 3) {
      line += "!" + std::to_string(repeated) + last;
    } else {
      line.append(repeated, last);
    }
  };
  for (std::size_t x = 0; x < width; ++x) {
    int bits = 0;
    for (std::size_t k = 0; k < kSixel && top + k < height; ++k)
      bits |= picture.pixels[(top + k) * width + x] == colour ? 1 << k : 0;
    const char letter = static_cast<char>('?' + bits);
    if (letter != last) {
      flush();
      last = letter;
      repeated = 0;
    }
    ++repeated;
  }
  if (last != '?') flush();
  return line;
}

}  // namespace

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

std::string kitty_graphics(const Image& image, std::size_t columns, std::size_t rows) {
  const std::string data = base64(image.rgb);
  std::string text;
  for (std::size_t at = 0; at < data.size() || at == 0; at += kChunk) {
    const bool more = at + kChunk < data.size();
    text += "\033_G";
    if (at == 0) {
      text += "a=T,f=24,i=1,p=1,q=2,C=1,s=" + std::to_string(image.width) +
              ",v=" + std::to_string(image.height) + ",c=" + std::to_string(columns) +
              ",r=" + std::to_string(rows) + ",";
    }
    text += std::string("m=") + (more ? "1" : "0") + ";" + data.substr(at, kChunk) + "\033\\";
  }
  return text;
}

std::string sixel_graphics(const Image& image) {
  const Indexed picture = indexed(image);
  std::string text = "\033P0;1;0q\"1;1;" + std::to_string(image.width) + ";" + std::to_string(image.height);
  for (std::size_t i = 0; i < picture.colours.size(); ++i) {
    text += "#" + std::to_string(i) + ";2";
    for (const unsigned part : picture.colours[i]) text += ";" + std::to_string((part * 100 + 127) / 255);
  }
  for (std::size_t top = 0; top < image.height; top += kSixel) {
    std::vector<bool> present(picture.colours.size(), false);
    const std::size_t end = std::min(image.height, top + kSixel);
    for (std::size_t i = top * image.width; i < end * image.width; ++i) present[picture.pixels[i]] = true;
    for (std::size_t colour = 0; colour < present.size(); ++colour) {
      if (!present[colour]) continue;
      text += "#" + std::to_string(colour) + sixels(picture, image.width, image.height, top, colour) + "$";
    }
    text += "-";
  }
  return text + "\033\\";
}

}  // namespace torchtap::tools::pictures
