#pragma once

// Facts about the libraries of this process.

#include <string>

namespace torchtap::tools::preload {

/// Whether any object in this process other than LibTorch and torchtap links LibTorch as a shared library.
bool program_uses_torch() noexcept;
/// The file of a LibTorch in this process that is not torchtap's; empty if there is none.
std::string other_torch();
/// Whether a Python interpreter is loaded.
bool program_uses_python() noexcept;
/// The name of its executable, as `ps` shows it.
std::string program_name();

}  // namespace torchtap::tools::preload
