#pragma once

// Checks UTF-8, and makes it.

#include <cstddef>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// The place of the first byte from `from` on that does not belong to well-formed UTF-8; npos if all do.
TORCHTAP_API std::size_t first_not_utf8(const std::string& text, std::size_t from = 0);

/// `text` with an escape, such as "\\377", in place of each byte that does not belong to UTF-8.
TORCHTAP_API std::string utf8_text(const std::string& text);

}  // namespace torchtap::base
