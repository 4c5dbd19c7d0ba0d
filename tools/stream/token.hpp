#pragma once

#include <string>

/// The token that a relay and its readers know.
namespace torchtap::tools::stream {

/// The first line of a file. Throws `c10::ValueError` if it cannot be read, others may read it, or it is
/// shorter than 16 characters.
std::string read_token(const std::string& path);
/// The same, after the file was made with 32 random characters if it was missing.
std::string read_or_make_token(const std::string& path);

}  // namespace torchtap::tools::stream
