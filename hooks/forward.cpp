// Numbers the forwards of a model, and calls functions when a forward ends.

#include <torchtap/hooks/detail/registry.hpp>
#include <torchtap/hooks/detail/thread_state.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::hooks {

using detail::ThreadState;

Forwards::Forwards(const model::ModuleRef& root)
    : ends_seen_(!root.scripted() && !root.exported() && model::extend::doors_of(root).sequence == nullptr),
      scope_(detail::Registry::instance().scope(root)) {}

std::uint64_t Forwards::current() const {
  return ThreadState::here().forward_of(scope_ == nullptr ? nullptr : scope_->hook.get());
}

bool Forwards::at_end(std::function<void()> function) const {
  ThreadState& state = ThreadState::here();
  if (!ends_seen_ || state.depth == 0) return false;
  state.ending.push_back(std::move(function));
  return true;
}

}  // namespace torchtap::hooks
