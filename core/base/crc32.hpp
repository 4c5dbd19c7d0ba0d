#pragma once

/// CRC-32, the checksum of zip files and journals, also computed while bytes are read or written; and
/// CRC-32C.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// The CRC-32 of `data`, continued from `crc`, the CRC-32 of the bytes before (0 for none). Uses libdeflate
/// if torchtap was built with it.
TORCHTAP_API std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// CRC-32 without a library, three to four times slower.
std::uint32_t crc32_portable(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// The CRC-32C (of Castagnoli's polynomial, RFC 3720) of `data`, continued as above: the checksum of
/// TensorBoard's files.
TORCHTAP_API std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept;

/// Computes the checksum of bytes in a second thread while this one reads or writes them. `finish` computes
/// what the second thread has left.
class Checksum {
 public:
  /// Only the first `available` bytes are valid so far.
  Checksum(const char* data, std::size_t size, std::size_t available);
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  ~Checksum();

  /// Declares the first `available` bytes valid.
  void advance(std::size_t available);
  /// Returns the checksum; all bytes must be valid.
  std::uint32_t finish();

 private:
  bool step();
  void help();

  const char* data_;
  const std::size_t size_;
  std::size_t available_;
  std::size_t at_ = 0;
  std::uint32_t crc_ = 0;
  bool done_ = false;
  std::mutex mutex_;
  std::condition_variable more_;
  std::thread helper_;
};

}  // namespace torchtap::base
