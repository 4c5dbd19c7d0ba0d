#pragma once

// Patterns with wildcards, as selectors, traces and streams take them for paths and labels.

#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Whether a text has a wildcard in it: `*`, `?` or `[`.
TORCHTAP_API bool is_glob(const std::string& text);

/// Whether a glob matches the whole of a text: `*` (also across dots and slashes), `?`, `[a-z]`, `[!a-z]`,
/// `[[:digit:]]`, and a backslash before a character that is meant literally. Takes no exponential time,
/// whatever the glob.
TORCHTAP_API bool matches_glob(const std::string& glob, const std::string& text);

}  // namespace torchtap::base
