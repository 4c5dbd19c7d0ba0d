#pragma once

/// Characters of UTF-8: how wide a terminal shows them, and which of them it must not see.

#include <cstddef>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::views::text {

struct Character {
  std::size_t bytes;  ///< 0 if the text is not UTF-8
  char32_t code;
};
/// The character that begins at `at`.
TORCHTAP_API Character character_at(const std::string& text, std::size_t at);

/// The width of `text` in columns of a terminal: two for wide characters, none for combining ones. Bytes that
/// are not UTF-8 take one column each. The width is equal in every locale.
TORCHTAP_API std::size_t width_of(const std::string& text);

/// The beginning of `text` that has at most so many columns.
TORCHTAP_API std::string head_of(const std::string& text, std::size_t columns);

/// Cuts `text` to at most `to` columns; dots replace its end or, with `keeps_end`, its beginning. With
/// `ascii`, these are two full stops.
TORCHTAP_API std::string cut(const std::string& text, std::size_t to, bool keeps_end = false,
                             bool ascii = false);

/// Escapes everything in `text` that could move the cursor, change colours or reorder neighbouring text:
/// control characters and bytes that are not UTF-8, as `ls` and `git` do ("\\033", "\\n", "\\377"). With
/// `keep_lines`, line breaks stay.
TORCHTAP_API std::string printable(const std::string& text, bool keep_lines = false);

}  // namespace torchtap::views::text
