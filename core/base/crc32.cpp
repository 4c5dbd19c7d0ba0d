// Computes CRC-32 by tables of 16 bytes or by libdeflate, and in a second thread.
#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/thread.hpp>

#if TORCHTAP_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif

namespace torchtap::base {
namespace {

constexpr std::size_t kCopied = std::size_t{1} << 18;  // stays in the cache between checksum and disk

using Tables = std::array<std::array<std::uint32_t, 256>, 16>;

/// The tables of a polynomial with its bits in reverse.
Tables make_tables(std::uint32_t polynomial) {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xFF];
    }
  }
  return tables;
}

// Slicing by 16 (Kounavis & Berry 2008): sixteen look-ups that do not wait for each other, for sixteen bytes.
std::uint32_t by_tables(const Tables& t, std::uint32_t crc, const void* data, std::size_t size) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= 16; size -= 16, bytes += 16) {
    std::uint32_t a, b, c, d;
    std::memcpy(&a, bytes, 4);
    std::memcpy(&b, bytes + 4, 4);
    std::memcpy(&c, bytes + 8, 4);
    std::memcpy(&d, bytes + 12, 4);
    a ^= crc;
    crc = t[15][a & 0xFF] ^ t[14][(a >> 8) & 0xFF] ^ t[13][(a >> 16) & 0xFF] ^ t[12][a >> 24] ^
          t[11][b & 0xFF] ^ t[10][(b >> 8) & 0xFF] ^ t[9][(b >> 16) & 0xFF] ^ t[8][b >> 24] ^ t[7][c & 0xFF] ^
          t[6][(c >> 8) & 0xFF] ^ t[5][(c >> 16) & 0xFF] ^ t[4][c >> 24] ^ t[3][d & 0xFF] ^
          t[2][(d >> 8) & 0xFF] ^ t[1][(d >> 16) & 0xFF] ^ t[0][d >> 24];
  }
  for (; size > 0; --size, ++bytes) crc = (crc >> 8) ^ t[0][(crc ^ *bytes) & 0xFF];
  return ~crc;
}

}  // namespace

std::uint32_t crc32_portable(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  static const Tables tables = make_tables(0xEDB88320u);
  return by_tables(tables, crc, data, size);
}

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  static const Tables tables = make_tables(0x82F63B78u);
  return by_tables(tables, crc, data, size);
}

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept {
#if TORCHTAP_HAVE_LIBDEFLATE
  return size == 0 ? crc : libdeflate_crc32(crc, data, size);
#else
  return crc32_portable(crc, data, size);
#endif
}

Checksum::Checksum(const char* data, std::size_t size, std::size_t available)
    : data_(data), size_(size), available_(available) {
  try {
    helper_ = start_thread("torchtap-crc", [this] { help(); });
  } catch (const std::system_error&) {  // `finish` computes all of it
  }
}

Checksum::~Checksum() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  more_.notify_one();
  if (helper_.joinable()) helper_.join();
}

void Checksum::advance(std::size_t available) {
  {
    const std::lock_guard lock(mutex_);
    available_ = available;
  }
  more_.notify_one();
}

std::uint32_t Checksum::finish() {
  std::unique_lock lock(mutex_);
  while (step()) {  // lets the other thread take a turn
    lock.unlock();
    lock.lock();
  }
  done_ = true;
  return crc_;
}

bool Checksum::step() {
  const std::size_t piece = std::min(kCopied, available_ - at_);
  crc_ = crc32(crc_, data_ + at_, piece);
  at_ += piece;
  return piece != 0;
}

void Checksum::help() {
  std::unique_lock lock(mutex_);
  while (!done_ && at_ < size_) {
    if (!step()) more_.wait(lock, [&] { return done_ || at_ < available_; });
    lock.unlock();
    lock.lock();
  }
}

}  // namespace torchtap::base
