#pragma once

#include <cstddef>
#include <string>

/// Characters of UTF-8, and the columns that they take in a terminal.
namespace torchtap::tools {

struct Character {
  std::size_t bytes;  ///< 0 where the text is not UTF-8
  char32_t code;
};
/// The character that begins at `at`.
Character character_at(const std::string& text, std::size_t at);

/// How many columns of a terminal `text` takes: two for wide characters, none for combining ones.
std::size_t width_of(const std::string& text);

/// `text` in at most `to` columns: where it is longer, dots stand for its end or, with `keeps_end`, for its
/// beginning.
std::string cut(const std::string& text, std::size_t to, bool keeps_end = false);

}  // namespace torchtap::tools
