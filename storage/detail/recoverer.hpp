#pragma once

/// Recovers a recording whose folder is open: see `recover.hpp`.

#include <string>

#include <torchtap/storage/recover.hpp>

namespace torchtap::storage::detail {

/// `recover` for a directory whose journal the caller has locked, or that has none.
Recovery recover_locked(const std::string& path, int directory, const RecoverOptions& options);

}  // namespace torchtap::storage::detail
