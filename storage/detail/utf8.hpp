#pragma once

/// Text as files hold it.

#include <string>

namespace torchtap::storage::detail {

/// Is `text` well-formed UTF-8?
bool is_utf8(const std::string& text);
/// UTF-8 without zero bytes: what a manifest can hold as a name.
bool is_name(const std::string& text);

}  // namespace torchtap::storage::detail
