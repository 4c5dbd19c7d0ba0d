#pragma once

// Descriptors and mappings that belong to this process alone.

#include <cstddef>
#include <string>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/base/process.hpp>

namespace torchtap::views::frames {

/// An open descriptor. A forked child closes its copy at once, so that the death of the process that opened
/// it is noticed at the other end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : kept_(fd) {}
  explicit Descriptor(base::KeptHere kept) : kept_(std::move(kept)) {}
  Descriptor(Descriptor&& other) noexcept = default;
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(kept_, other.kept_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const noexcept { return kept_.get(); }
  explicit operator bool() const noexcept { return get() >= 0; }
  void close() noexcept { kept_.close(); }

 private:
  base::KeptHere kept_;
};

/// Memory that was mapped. A forked child does not have it.
class TORCHTAP_API Mapping {
 public:
  Mapping() = default;
  /// Maps the first `size` bytes. Throws `c10::Error` if the system refuses.
  Mapping(const Descriptor& descriptor, std::size_t size, bool writable);
  Mapping(Mapping&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), size_(other.size_), made_here_(other.made_here_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
    std::swap(made_here_, other.made_here_);
    return *this;
  }
  ~Mapping();

  char* get() const noexcept { return at_; }
  std::size_t size() const noexcept { return size_; }

 private:
  char* at_ = nullptr;
  std::size_t size_ = 0;
  base::MadeHere made_here_;
};

/// Throws a `c10::Error`: "WHO: cannot WHAT: the system's words".
[[noreturn]] TORCHTAP_API void system_error(const char* who, const std::string& what, int error);

}  // namespace torchtap::views::frames
