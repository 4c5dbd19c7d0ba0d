// SHA-256 as its standard writes it.
#include <cstddef>
#include <cstring>
#include <string>

#include <torchtap/views/stream/detail/sha256.hpp>

namespace torchtap::views::stream::detail {
namespace {

constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t kBlock = 64;

std::uint32_t turned(std::uint32_t word, int by) noexcept {
  return word >> by | word << (32 - by);
}

void add_block(std::array<std::uint32_t, 8>& state, const unsigned char* block) noexcept {
  std::uint32_t w[64];
  for (std::ptrdiff_t i = 0; i < 16; ++i) {
    w[i] = static_cast<std::uint32_t>(block[4 * i]) << 24 |
           static_cast<std::uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<std::uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t before = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
    const std::uint32_t after = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + before + w[i - 7] + after;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t one = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
    const std::uint32_t first = h + one + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t zero = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
    const std::uint32_t second = zero + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + second;
  }
  const std::uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += sums[i];
}

}  // namespace

Digest sha256(std::string_view text) noexcept {
  std::array<std::uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  const std::size_t whole = text.size() / kBlock * kBlock;
  for (std::size_t at = 0; at < whole; at += kBlock) add_block(state, bytes + at);
  unsigned char last[2 * kBlock] = {};
  const std::size_t rest = text.size() - whole;
  if (rest != 0) std::memcpy(last, bytes + whole, rest);
  last[rest] = 0x80;
  const std::size_t size = rest + 9 > kBlock ? 2 * kBlock : kBlock;
  const std::uint64_t bits = static_cast<std::uint64_t>(text.size()) * 8;
  for (std::size_t i = 0; i < 8; ++i) last[size - 1 - i] = static_cast<unsigned char>(bits >> 8 * i);
  for (std::size_t at = 0; at < size; at += kBlock) add_block(state, last + at);
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view text) noexcept {
  std::string inner(kBlock, '\0');
  if (key.size() > kBlock) {
    const Digest shorter = sha256(key);
    std::memcpy(inner.data(), shorter.data(), shorter.size());
  } else if (!key.empty()) {
    std::memcpy(inner.data(), key.data(), key.size());
  }
  std::string outer = inner;
  for (char& byte : inner) byte = static_cast<char>(byte ^ 0x36);
  for (char& byte : outer) byte = static_cast<char>(byte ^ 0x5c);
  const Digest digest = sha256(inner.append(text));
  outer.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return sha256(outer);
}

bool same(const Digest& a, const Digest& b) noexcept {
  unsigned differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned>(a[i] ^ b[i]);
  return differ == 0;
}

}  // namespace torchtap::views::stream::detail
