#pragma once

namespace torchtap::preload {

/// Whether any object in this process other than LibTorch and torchtap links LibTorch as a shared library.
bool program_uses_torch() noexcept;

}  // namespace torchtap::preload
