#pragma once

/// The waiter, `libtorchtap_preload.so`: what LD_PRELOAD brings into every process. It needs the C library
/// alone, and loads the agent, which needs LibTorch, when the LibTorch that torchtap was built for is about
/// to be loaded. In a process without it, or with another one, nothing else happens.
namespace torchtap::tools::preload {

/// A process that the waiter starts again, with the agent, has its id in this environment variable.
inline constexpr char kStartedAgain[] = "TORCHTAP_PRELOAD_AGAIN";

}  // namespace torchtap::tools::preload
