#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <torchtap/base/remove_folder.hpp>

namespace torchtap::tools {

/// A new folder, which is removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "torchtap-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error("cannot make a folder in " + std::filesystem::temp_directory_path().string() +
                               ": " + std::strerror(errno) + ".");
    }
  }
  ~TemporaryFolder() { base::remove_folder(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace torchtap::tools
