#pragma once

/// The waiter, `libtorchtap_preload.so`: what LD_PRELOAD brings into every process. It needs the C library
/// alone, and loads the agent, which needs LibTorch, when the LibTorch that torchtap was built for is about
/// to be loaded. In a process without it, or with another one, nothing else happens.
namespace torchtap::tools::preload {

/// The environment variable by which the launcher tells the waiter these paths, a line each: the folder of
/// the reports, the agent, the library that interposes LibTorch, and LibTorch.
inline constexpr char kWaiterVariable[] = "TORCHTAP_PRELOAD_WAITER";
/// A process that the waiter starts again, with the agent, has its id in this one.
inline constexpr char kStartedAgain[] = "TORCHTAP_PRELOAD_AGAIN";

/// What the agent does at the end of a process: after `main` and at `exit`; at `_exit`; at `abort` and a
/// failed `assert`.
struct Ends {
  void (*normally)();
  void (*at_once)();
  void (*badly)();
};

}  // namespace torchtap::tools::preload

/// Has the waiter call these from now on.
extern "C" void torchtap_preload_at_ends(const torchtap::tools::preload::Ends& ends);
