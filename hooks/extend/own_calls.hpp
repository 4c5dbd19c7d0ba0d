#pragma once

/// Hides torchtap's own calls of modules from recordings of the whole program.

#include <torchtap/base/api.hpp>

namespace torchtap::hooks::extend {

/// While it lives, the calls of this thread are torchtap's own: a recording of the whole program (see
/// `set_called_module`) is not told of them.
class TORCHTAP_API OwnCalls {
 public:
  OwnCalls() noexcept;
  ~OwnCalls();
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;
  /// Whether one lives in this thread.
  static bool here() noexcept;
};

}  // namespace torchtap::hooks::extend
