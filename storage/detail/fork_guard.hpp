#pragma once

/// Detects that this process was forked from the one that opened a resource.

namespace torchtap::storage::detail {

class ForkGuard {
 public:
  /// Makes this process the owner.
  ForkGuard();
  /// Whether this process was forked from the owner.
  bool in_child() const noexcept;

 private:
  unsigned forks_;
};

}  // namespace torchtap::storage::detail
