// Finds the command's own files.
#include "installed.hpp"

#include <stdexcept>

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;

/// The prefix of the installation, or the build folder.
fs::path prefix() {
  return fs::read_symlink("/proc/self/exe").parent_path() / TORCHTAP_PREFIX_FROM_PROGRAM;
}

}  // namespace

fs::path find_library(const std::string& name) {
  for (const fs::path& folder : {prefix(), prefix() / TORCHTAP_LIBRARY_FOLDER}) {
    std::error_code error;
    fs::path found = fs::canonical(folder / name, error);
    if (!error) return found;
  }
  throw std::runtime_error(name + " is neither in " + prefix().string() + " nor in its " +
                           TORCHTAP_LIBRARY_FOLDER + ".");
}

fs::path find_python() {
  for (const fs::path& folder : {prefix() / TORCHTAP_PYTHON_FOLDER, prefix() / ".." / "python"}) {
    if (fs::exists(folder / "torchtap_compare" / "__main__.py")) return fs::canonical(folder);
  }
  return {};
}

}  // namespace torchtap::tools
