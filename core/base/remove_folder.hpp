#pragma once

/// Removes a folder with all that is in it.

#include <ftw.h>
#include <stdio.h>

#include <string>

namespace torchtap::base {

/// Removes the file `path`, or the folder with all that is in it. Follows no links; what may not be removed
/// stays.
///
/// Not `std::filesystem::remove_all`: LibTorch's wheels export one that calls a function which they lack
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
