#pragma once

#include <ATen/core/Tensor.h>
#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torchtap::tools {

/// Reads a file in the format of MNIST (http://yann.lecun.com/exdb/mnist), plain or gzipped, from its first
/// row on: bytes, integers of 1, 2 and 4 bytes, floats and doubles, of up to 8 dimensions.
///
/// No more is allocated than was asked for and is there, whatever sizes the file claims.
class IdxReader {
 public:
  /// Reads the header. Throws `c10::ValueError` naming the file and what is wrong with it.
  explicit IdxReader(const std::string& path);

  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  c10::ScalarType dtype() const noexcept { return dtype_; }
  /// The next `count` rows, or as many as are left, as they are in the file; an empty tensor after the last.
  /// Throws `c10::ValueError` if the file ends too early, goes on after the last row, or is damaged.
  at::Tensor next(std::int64_t count);

 private:
  [[noreturn]] void bad(const std::string& why) const;
  /// False at the end of the file.
  bool read(void* bytes, std::int64_t count);

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  std::vector<std::int64_t> shape_;
  c10::ScalarType dtype_ = c10::ScalarType::Byte;
  std::int64_t row_ = 0;  // bytes a row
  std::int64_t done_ = 0;
};

}  // namespace torchtap::tools
