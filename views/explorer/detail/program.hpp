#pragma once

// The name of the program that runs, for the page.

#include <string>

namespace torchtap::views::explorer::detail {

/// The name of the program's file; empty if the system does not know it.
std::string program_name();

}  // namespace torchtap::views::explorer::detail
