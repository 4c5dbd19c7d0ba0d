#pragma once

/// The checksum of zip files and of journals, also beside reading and writing.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace torchtap::storage::detail {

/// The checksum of zip files. Continues `crc`, which is that of the bytes before; 0 for none. By libdeflate
/// where torchtap was built with it.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept;
/// The same without a library, three to four times slower.
std::uint32_t crc32_portable(std::uint32_t crc, const void* data, std::size_t size) noexcept;

/// The checksum of bytes that this thread writes or reads meanwhile, by a second thread; where that gets no
/// processor, by this one in the end.
class Checksum {
 public:
  /// Only the first `available` bytes are there so far.
  Checksum(const char* data, std::size_t size, std::size_t available);
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  ~Checksum();

  /// From now on the first `available` bytes are there.
  void advance(std::size_t available);
  /// When all bytes are there.
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

}  // namespace torchtap::storage::detail
