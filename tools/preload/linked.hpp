#pragma once

namespace torchtap::preload {

/// Whether anything in this process but LibTorch and torchtap themselves needs LibTorch as a shared library.
bool program_uses_torch() noexcept;

}  // namespace torchtap::preload
