#pragma once

/// Tells a child process (fork) from the one that opened something.

namespace torchtap::storage::detail {

class ForkGuard {
 public:
  /// This process is the owner.
  ForkGuard();
  /// Is this process a child of the owner's?
  bool in_child() const noexcept;

 private:
  unsigned forks_;
};

}  // namespace torchtap::storage::detail
