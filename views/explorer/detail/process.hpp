#pragma once

// What belongs to this process alone: programs that it starts and children that it forks do not get it.

#include <cstdint>

namespace torchtap::views::explorer::detail {

/// How many forks lie between the process that asked first and this one.
std::uint64_t forks() noexcept;

/// Tells whether this is still the process that made it. After a fork, threads of the parent are missing and
/// mutexes that they held stay locked, so a child leaves alone all that they share.
class MadeHere {
 public:
  explicit operator bool() const noexcept { return forks_ == forks(); }

 private:
  std::uint64_t forks_ = forks();
};

/// While it lives, this process does not fork. Then a descriptor can be opened and kept without a child in
/// between.
class NoForks {
 public:
  NoForks();
  ~NoForks();
  NoForks(const NoForks&) = delete;
  NoForks& operator=(const NoForks&) = delete;
};

/// Keeps an open descriptor from other programs and processes: `exec` closes it, and so does a forked child,
/// before it does anything else. A child that held it would keep the port taken, or the run's file locked,
/// after the parent has ended. Whoever opened the descriptor closes it, after this object is gone.
class KeptHere {
 public:
  KeptHere() = default;
  explicit KeptHere(int descriptor) : KeptHere(descriptor, NoForks()) {}
  KeptHere(int descriptor, const NoForks&);
  ~KeptHere();
  KeptHere(KeptHere&& other) noexcept;
  KeptHere& operator=(KeptHere&& other) noexcept;

 private:
  void forget() noexcept;

  int descriptor_ = -1;
};

}  // namespace torchtap::views::explorer::detail
