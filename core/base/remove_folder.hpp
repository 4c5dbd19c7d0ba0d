#pragma once

/// Removes a folder with its contents.

#include <ftw.h>
#include <stdio.h>

#include <string>

namespace torchtap::base {

/// Removes the file `path`, or the folder with its contents. Follows no links; files that may not be removed
/// stay.
///
/// Not `std::filesystem::remove_all`: LibTorch's wheels export a copy that calls a function which they lack
/// (2.11; pytorch issue 133437), and programs that link them crash there.
inline void remove_folder(const std::string& path) {
  constexpr int kDescriptors = 16;
  const auto remove = [](const char* entry, const struct stat*, int, struct FTW*) {
    ::remove(entry);
    return 0;
  };
  ::nftw(path.c_str(), remove, kDescriptors, FTW_DEPTH | FTW_PHYS);
}

}  // namespace torchtap::base
