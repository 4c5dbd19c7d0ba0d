#pragma once

// Checks the format numbers that files and messages carry (docs/format.md).

#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Why a reader of the formats 1 to `known` cannot read what has the number `found`, as the end of a sentence
/// without its period; empty if it can. `what` is the word for the number: states have versions.
TORCHTAP_API std::string unreadable_format(std::int64_t found, std::int64_t known,
                                           const char* what = "format");

}  // namespace torchtap::base
