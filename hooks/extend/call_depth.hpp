#pragma once

/// Counts the nested hooked calls of a thread.

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::hooks::extend {

/// The number of hooked calls that this thread is in, as a hook sees it. Calls that may never return to
/// torchtap do not count: calls of TorchScript, and of a `Sequential` that is hooked through its entries.
TORCHTAP_API int call_depth() noexcept;

/// Adds calls that a door knows to be around the one whose hooks it runs, while it lives: calls that may
/// never return to torchtap and are not counted, as Python's.
class TORCHTAP_API CallsAround {
 public:
  explicit CallsAround(int calls) noexcept;
  ~CallsAround();
  CallsAround(const CallsAround&) = delete;
  CallsAround& operator=(const CallsAround&) = delete;

 private:
  int former_;
};

/// Whether the calls of the module count.
TORCHTAP_API bool counts_in_depth(const model::ModuleRef& module);

}  // namespace torchtap::hooks::extend
