#pragma once

// Makes folders that others should not read.

#include <string>

namespace torchtap::views::monitor::detail {

/// The folder, without symbolic links in its path; it and its parents are made if they are missing, it with
/// mode 0700. Throws `c10::ValueError` if it is a symbolic link itself, something else than a folder, or,
/// if it must be this user's own, another's.
std::string private_folder(const std::string& path, bool must_be_own = false);

}  // namespace torchtap::views::monitor::detail
