#pragma once

#include <fstream>
#include <functional>
#include <string>

/// Opens and writes whole files.
namespace torchtap::tools {

/// Throws `c10::ValueError` with the system's reason if the file cannot be opened.
std::ifstream open_to_read(const std::string& path);

/// Creates or replaces the file. Throws `c10::Error` with the system's reason if writing fails.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace torchtap::tools
