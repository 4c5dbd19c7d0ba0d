#pragma once

/// Tells of every module that is called, hooked or not, where calls are intercepted (torchtap::transparent).

#include <torchtap/base/api.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::hooks::extend {

/// Called for every module that is called, before its hooks are looked up; may attach some. Serves recording
/// in programs that do not mention torchtap. Calls during `OwnCalls` are left out.
using CalledModule = void (*)(torch::nn::Module& module);
/// Sets it for the process; null removes it. Returns the one before, which is the new one's to call.
TORCHTAP_API CalledModule set_called_module(CalledModule observer) noexcept;

/// Makes the hooks' shared state of a process, and registers its handlers of `fork`, so that handlers which
/// the caller registers afterwards run around them.
TORCHTAP_API void prepare();

}  // namespace torchtap::hooks::extend
