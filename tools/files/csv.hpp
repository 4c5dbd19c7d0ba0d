#pragma once

#include "json.hpp"

namespace torchtap::tools {

/// Prints a list of objects to stdout as comma-separated values (RFC 4180) under a header line of their keys,
/// in order of appearance. Nested objects become columns "key.inner", lists one cell separated by blanks,
/// null and missing keys an empty cell; an empty "path" is "(root)". Numbers have all digits, as in JSON.
void print_csv(const Json& rows);

}  // namespace torchtap::tools
