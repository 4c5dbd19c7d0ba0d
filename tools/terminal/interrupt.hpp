#pragma once

namespace torchtap::tools {

/// While an object exists, the first SIGINT, SIGTERM or SIGHUP is noted instead of ending the program, so
/// that it can finish its work; a second one ends it as usual. One object at a time. Ignored signals stay
/// ignored.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// The signal that was received; 0 if there was none.
  int signal() const noexcept;
};

/// Ends the program as if `signal` had killed it, so that its exit status shows the signal.
[[noreturn]] void end_by(int signal);

}  // namespace torchtap::tools
