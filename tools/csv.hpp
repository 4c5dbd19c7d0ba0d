#pragma once

#include "json.hpp"

namespace torchtap::tools {

/// Prints a list of objects to stdout as comma separated values (RFC 4180) under a line of titles: their keys
/// in the order in which they come. Objects inside of them become columns "key.inner", lists one cell with
/// blanks between, null and missing keys an empty cell. Numbers have all digits, as in JSON.
void print_csv(const Json& rows);

}  // namespace torchtap::tools
