#pragma once

/// Numbers the forwards of a model in each thread, and calls functions when a forward ends.

#include <cstdint>
#include <functional>
#include <memory>

#include <torchtap/base/api.hpp>

namespace torchtap::model {
class ModuleRef;
}

namespace torchtap::hooks {
namespace detail {
struct ScopeHold;
}

/// Numbers the forwards of a root, so that events of different forwards can be told apart.
class TORCHTAP_API Forwards {
 public:
  /// Counts forwards of `root`, the root of a walk. If it cannot be hooked, a forward is one call of the
  /// outermost hooked module.
  explicit Forwards(const model::ModuleRef& root);

  /// The forward that this thread is in: each has another number, from 1. Ask inside of a hook.
  std::uint64_t current() const;
  /// Calls `function`, which must not throw, when the outermost hooked call of this thread ends, also by an
  /// exception. Returns false and does nothing where no end will be seen: outside of hooked calls, and if the
  /// root is a `Sequential`, which is hooked through its entries, of TorchScript or exported.
  bool at_end(std::function<void()> function) const;

 private:
  bool ends_seen_;
  std::shared_ptr<detail::ScopeHold> scope_;  // null if the root cannot be hooked
};

}  // namespace torchtap::hooks
