#pragma once

// Texts of programs, which may hold any bytes, for readers that expect UTF-8.

#include <algorithm>
#include <string>

#include <torchtap/views/text/characters.hpp>

namespace torchtap::views::stream::detail {

/// `text` with U+FFFD in place of each byte that is zero, which no manifest holds, or not UTF-8.
inline std::string as_utf8(const std::string& text) {
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = text::character_at(text, at).bytes;
    clean += bytes == 0 || text[at] == '\0' ? "\xEF\xBF\xBD" : text.substr(at, bytes);
    at += std::max<std::size_t>(bytes, 1);
  }
  return clean;
}

}  // namespace torchtap::views::stream::detail
