#pragma once

// Finds the libraries and Python packages that belong to the command.

#include <filesystem>
#include <string>

namespace torchtap::tools {

/// A library of torchtap: beside the command in a build tree, or in the library folder of the installation.
/// Throws `std::runtime_error` if it is in neither.
std::filesystem::path find_library(const std::string& name);
/// The folder with torchtap's Python packages; empty if it is not near the command, as on Debian, where
/// Python finds them by itself.
std::filesystem::path find_python();

}  // namespace torchtap::tools
