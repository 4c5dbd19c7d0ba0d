#pragma once

/// Not part of the interface: see `spool.hpp`.

#include <string>
#include <torchtap/storage/spool.hpp>

namespace torchtap::storage::detail {

/// `recover` for a directory whose journal the caller has locked, or that has none.
Recovery recover_locked(const std::string& path, int directory, const RecoverOptions& options);

}  // namespace torchtap::storage::detail
