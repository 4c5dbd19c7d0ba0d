#pragma once

namespace torchtap::tools {

/// While it lives, a first SIGINT, SIGTERM or SIGHUP does not end the program but is noted, so that it can
/// finish what it has; a second one ends it as usual. One at a time. Signals that are ignored stay so.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// The signal that came; 0 if none did.
  int signal() const noexcept;
};

/// Ends the program as `signal` would have done at once, for whoever looks at its exit status.
[[noreturn]] void end_by(int signal);

}  // namespace torchtap::tools
