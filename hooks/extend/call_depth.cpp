// Tells the nested hooked calls of a thread, and which modules' calls count.

#include <utility>

#include <torchtap/hooks/detail/thread_state.hpp>
#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::hooks::extend {
namespace {

thread_local int calls_around = 0;

}  // namespace

int call_depth() noexcept {
  return detail::ThreadState::here().depth + calls_around;
}

CallsAround::CallsAround(int calls) noexcept : former_(std::exchange(calls_around, calls)) {}

CallsAround::~CallsAround() {
  calls_around = former_;
}

bool counts_in_depth(const model::ModuleRef& module) {
  const model::extend::Doors& doors = model::extend::doors_of(module);
  return !doors.of_part && doors.sequence == nullptr;
}

}  // namespace torchtap::hooks::extend
