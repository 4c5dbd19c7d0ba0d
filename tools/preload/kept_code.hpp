#pragma once

#include <memory>

namespace torch::nn {
class Module;
}

namespace torchtap::tools::preload {

/// Notes the library that has the code of the module's reference counts, which has to stay loaded: a plug-in
/// may be closed when its modules are gone, and what is kept of them, weak pointers, is released by that
/// code. GCC's plug-ins stay loaded by themselves. Thread-safe.
void note_code_of(const std::weak_ptr<const torch::nn::Module>& module) noexcept;
/// Keeps the noted libraries loaded. Call it without a lock: another thread may be loading a library that
/// runs modules as it is loaded, and waits for that lock.
void keep_noted_code() noexcept;

}  // namespace torchtap::tools::preload
