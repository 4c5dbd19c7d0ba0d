#pragma once

#include <fstream>
#include <functional>
#include <string>

/// Files that are read or written as they are.
namespace torchtap::tools {

/// Throws `c10::ValueError` with the system's reason if the file cannot be opened.
std::ifstream open_to_read(const std::string& path);

/// Makes or replaces the file. Throws `c10::Error` with the system's reason if not all could be written.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace torchtap::tools
