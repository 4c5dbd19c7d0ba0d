#pragma once

// Descriptors and mappings that belong to this process alone.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace torchtap::views::stream::detail {

/// How many times this process was forked since the first call: different in a child.
unsigned forks() noexcept;

/// An open descriptor. A forked child closes its copy at once, so that the death of the process that opened
/// it is noticed at the other end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd);
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)), forks_(other.forks_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(forks_, other.forks_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void close() noexcept;

 private:
  int fd_ = -1;
  unsigned forks_ = 0;
};

/// Memory that was mapped. A forked child does not have it.
class Mapping {
 public:
  Mapping() = default;
  /// Maps the first `size` bytes. Throws `c10::Error` if the system refuses.
  Mapping(const Descriptor& descriptor, std::size_t size, bool writable);
  Mapping(Mapping&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), size_(other.size_), forks_(other.forks_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
    std::swap(forks_, other.forks_);
    return *this;
  }
  ~Mapping();

  char* get() const noexcept { return at_; }
  std::size_t size() const noexcept { return size_; }

 private:
  char* at_ = nullptr;
  std::size_t size_ = 0;
  unsigned forks_ = 0;
};

/// Throws a `c10::Error`: "views::stream: cannot WHAT: the system's words".
[[noreturn]] void system_error(const std::string& what, int error);

}  // namespace torchtap::views::stream::detail
