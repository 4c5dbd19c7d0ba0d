#pragma once

#include <fstream>
#include <string>

/// Opens files.
namespace torchtap::tools {

/// Throws `c10::ValueError` with the system's reason if the file cannot be opened.
std::ifstream open_to_read(const std::string& path);

}  // namespace torchtap::tools
