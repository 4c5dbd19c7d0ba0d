#pragma once

// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), with which readers elsewhere prove that they know a token.
// LibTorch has only SHA-1, and a cryptography library is too large a dependency for this one function.

#include <array>
#include <cstdint>
#include <string_view>

namespace torchtap::views::stream::detail {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view text) noexcept;
Digest hmac_sha256(std::string_view key, std::string_view text) noexcept;
/// Takes the same time wherever they differ.
bool same(const Digest& a, const Digest& b) noexcept;

}  // namespace torchtap::views::stream::detail
