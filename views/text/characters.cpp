#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include <torchtap/views/text/characters.hpp>

namespace torchtap::views::text {
namespace {

struct Cell {
  std::size_t begin;  // offset in the text
  std::size_t columns;
};

/// The locale of this thread, in which `wcwidth` knows all characters. The program's locale is not touched.
class Utf8Locale {
 public:
  Utf8Locale() {
    static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (utf8 != nullptr) before_ = ::uselocale(utf8);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
  ~Utf8Locale() {
    if (before_ != nullptr) ::uselocale(before_);
  }

 private:
  locale_t before_ = nullptr;
};

/// The characters of `text`.
std::vector<Cell> cells_of(const std::string& text) {
  const Utf8Locale locale;
  std::vector<Cell> cells;
  for (std::size_t at = 0; at < text.size();) {
    const auto [bytes, code] = character_at(text, at);
    const int columns = bytes == 0 ? 1 : ::wcwidth(static_cast<wchar_t>(code));
    cells.push_back({at, columns < 0 ? 1 : static_cast<std::size_t>(columns)});
    at += std::max<std::size_t>(bytes, 1);
  }
  return cells;
}

/// C0, DEL, C1, line and paragraph separators, and characters that change the writing direction.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200E && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

std::string escaped(unsigned char byte) {
  static constexpr char kLetters[] = "abtnvfr";  // for codes from 7
  if (byte >= 7 && byte <= 13) return std::string("\\") + kLetters[byte - 7];
  char text[8];
  std::snprintf(text, sizeof text, "\\%03o", byte);
  return text;
}

}  // namespace

Character character_at(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {1, lead};
  const std::size_t size = lead >= 0xC2 && lead < 0xE0   ? 2
                           : lead >= 0xE0 && lead < 0xF0 ? 3
                           : lead >= 0xF0 && lead < 0xF5 ? 4
                                                         : 0;
  if (size == 0 || size > text.size() - at) return {0, 0};
  char32_t code = lead & (0xFFu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {0, 0};
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  const char32_t least = size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
  if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {0, 0};
  return {size, code};
}

std::size_t width_of(const std::string& text) {
  std::size_t columns = 0;
  for (const auto& cell : cells_of(text)) columns += cell.columns;
  return columns;
}

std::string cut(const std::string& text, std::size_t to, bool keeps_end, bool ascii) {
  const auto cells = cells_of(text);
  std::size_t columns = 0;
  for (const auto& cell : cells) columns += cell.columns;
  if (columns <= to) return text;
  const std::size_t size = std::min<std::size_t>(to, ascii ? 2 : 1);
  const std::string dots = ascii ? std::string(size, '.') : size == 0 ? "" : "…";
  const std::size_t room = to - size;
  if (keeps_end) {
    std::size_t first = 0;
    // Characters that combine with a cut one are cut too.
    while (first < cells.size() && (columns > room || cells[first].columns == 0)) {
      columns -= cells[first++].columns;
    }
    return dots + (first < cells.size() ? text.substr(cells[first].begin) : "");
  }
  return head_of(text, room) + dots;
}

std::string head_of(const std::string& text, std::size_t columns) {
  std::size_t used = 0;
  for (const auto& cell : cells_of(text)) {
    if (used + cell.columns > columns) return text.substr(0, cell.begin);
    used += cell.columns;
  }
  return text;
}

std::string printable(const std::string& text, bool keep_lines) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto [size, code] = character_at(text, at);
    const bool line = keep_lines && code == '\n';
    if (size != 0 && (!is_control(code) || line)) {
      result.append(text, at, size);
    } else {
      for (std::size_t i = 0; i < std::max<std::size_t>(size, 1); ++i) {
        result += escaped(static_cast<unsigned char>(text[at + i]));
      }
    }
    at += std::max<std::size_t>(size, 1);
  }
  return result;
}

}  // namespace torchtap::views::text
