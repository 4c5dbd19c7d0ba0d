#pragma once

/// Checks whether files can hold a text or a name.

#include <string>

namespace torchtap::storage::detail {

/// Whether `text` is well-formed UTF-8.
bool is_utf8(const std::string& text);
/// Whether `text` is UTF-8 without zero bytes, so that a manifest can hold it as a name.
bool is_name(const std::string& text);

}  // namespace torchtap::storage::detail
