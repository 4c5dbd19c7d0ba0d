// Decides which modules' calls count in the call depth.

#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::hooks::extend {

bool counts_in_depth(const model::ModuleRef& module) {
  const model::extend::Doors& doors = model::extend::doors_of(module);
  return !doors.script && doors.sequence == nullptr;
}

}  // namespace torchtap::hooks::extend
