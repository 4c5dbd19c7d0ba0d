#pragma once

/// Declares what Linux and macOS call by different names.

#include <signal.h>

#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Names the calling thread, for debuggers and `top`. At most 15 bytes, as Linux takes no more.
TORCHTAP_API void name_this_thread(const char* name) noexcept;

/// Takes a signal of `set`, which the calling thread blocks, if one is pending.
TORCHTAP_API void take_pending(const sigset_t& set) noexcept;

enum class Rename {
  exchange,    ///< both names exist, and change places
  no_replace,  ///< fails with EEXIST if there is a file of the new name
};
/// rename(2) in one step. -1 and an errno on failure: ENOSYS, EINVAL, EOPNOTSUPP or ENOTSUP if the system or
/// the file system cannot.
TORCHTAP_API int rename(const std::string& from, const std::string& to, Rename how) noexcept;

}  // namespace torchtap::base
