#pragma once

// Keeps descriptors from the programs that the process starts and from the children that it forks.

#include <cstdint>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// How many forks lie between the process that asked first and this one.
TORCHTAP_API std::uint64_t forks() noexcept;

/// Tells whether this is still the process that made it. After a fork, threads of the parent are missing and
/// mutexes that they held stay locked, so a child does not touch what they share.
class MadeHere {
 public:
  MadeHere() noexcept : forks_(forks()) {}
  explicit operator bool() const noexcept { return forks_ == forks(); }

 private:
  std::uint64_t forks_;
};

/// While it lives, this process does not fork. Then a descriptor can be opened and kept without a child in
/// between.
class TORCHTAP_API NoForks {
 public:
  NoForks();
  ~NoForks();
  NoForks(const NoForks&) = delete;
  NoForks& operator=(const NoForks&) = delete;
};

/// Keeps an open descriptor from other programs and processes: `exec` closes it, and so does a forked child,
/// before it does anything else. A child that held it would keep a port taken or a file locked, and hide the
/// death of its parent from the other end of a connection. It closes nothing in this process unless asked to
/// by `close`.
class TORCHTAP_API KeptHere {
 public:
  KeptHere() = default;
  explicit KeptHere(int descriptor) : KeptHere(descriptor, NoForks()) {}
  KeptHere(int descriptor, const NoForks&);
  ~KeptHere() { forget(false); }
  KeptHere(KeptHere&& other) noexcept;
  KeptHere& operator=(KeptHere&& other) noexcept;

  /// The descriptor, or -1.
  int get() const noexcept { return descriptor_; }
  /// Closes the descriptor. Does so only in the process that kept it.
  void close() noexcept { forget(true); }

 private:
  void forget(bool close) noexcept;

  int descriptor_ = -1;
  MadeHere made_here_;
};

}  // namespace torchtap::base
