#pragma once

/// Refuses to hook a module on which another copy of torchtap in the process has hooks.

#include <string>

#include <torchtap/base/error.hpp>

namespace torchtap::hooks::detail {

/// Throws `c10::ValueError` if another copy of torchtap in this process has hooks on `what`.
inline void check_copy(bool another_copy, const std::string& what) {
  TORCH_CHECK_VALUE(
      !another_copy, "hooks::attach: another copy of torchtap in this process has hooks on ", what,
      ", and the two do not know of each other. Link all parts of the program, plug-ins too, with "
      "one shared libtorchtap instead of static or different ones; or attach with that copy.");
}

}  // namespace torchtap::hooks::detail
