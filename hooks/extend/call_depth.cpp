// Tells the nested hooked calls of a thread, and which modules' calls count.

#include <torchtap/hooks/detail/thread_state.hpp>
#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::hooks::extend {

int call_depth() noexcept {
  return detail::ThreadState::here().depth;
}

bool counts_in_depth(const model::ModuleRef& module) {
  const model::extend::Doors& doors = model::extend::doors_of(module);
  return !doors.of_part && doors.sequence == nullptr;
}

}  // namespace torchtap::hooks::extend
