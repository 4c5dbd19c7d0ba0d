// Refuses what a hook of this kind does not see.

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/event.hpp>

namespace torchtap::hooks {

void Event::lacks(const char* member, const char* what) const {
  TORCH_CHECK_VALUE(false, "hooks::Event::", member, ": this hook of \"", path_, "\" (", type_, ") sees no ",
                    what, ".");
}

}  // namespace torchtap::hooks
