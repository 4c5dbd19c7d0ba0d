// Decides which modules' calls count in the call depth.

#include <torchtap/hooks/detail/depth.hpp>
#include <torchtap/model/detail/node.hpp>

namespace torchtap::hooks::detail {

bool counts_in_depth(const model::ModuleRef& module) {
  const model::detail::Doors& doors = model::detail::doors_of(module);
  return !doors.script && doors.sequence == nullptr;
}

}  // namespace torchtap::hooks::detail
