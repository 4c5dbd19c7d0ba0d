#pragma once

// Checks UTF-8.

#include <cstddef>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// The place of the first byte that does not belong to well-formed UTF-8; npos if all do.
TORCHTAP_API std::size_t first_not_utf8(const std::string& text);

}  // namespace torchtap::base
