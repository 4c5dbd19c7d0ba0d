#pragma once

// XXH64 with seed 0, by xxHash, whose header is its source, so that nothing is linked.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace torchtap::views::monitor::detail {

class Digest {
 public:
  Digest() noexcept { XXH64_reset(&state_, 0); }
  void add(const void* data, std::size_t bytes) noexcept {
    if (bytes != 0) XXH64_update(&state_, data, bytes);
  }
  std::uint64_t value() const noexcept { return XXH64_digest(&state_); }

 private:
  XXH64_state_t state_;
};

}  // namespace torchtap::views::monitor::detail
