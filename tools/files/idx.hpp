#pragma once

#include <ATen/core/Tensor.h>
#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torchtap::tools {

/// Reads a file in MNIST's idx format (http://yann.lecun.com/exdb/mnist), plain or gzipped, sequentially from
/// the first row: bytes, integers of 1, 2 and 4 bytes, floats and doubles, with up to 8 dimensions.
///
/// Allocates no more than was requested and is present, whatever sizes the header declares.
class IdxReader {
 public:
  /// Reads the header. Throws `c10::ValueError` that names the file and the problem.
  explicit IdxReader(const std::string& path);

  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  c10::ScalarType dtype() const noexcept { return dtype_; }
  /// The next `count` rows, or as many as are left, in the file's dtype; an empty tensor after the last.
  /// Throws `c10::ValueError` if the file is truncated, has data after the last row, or is damaged.
  at::Tensor next(std::int64_t count);

 private:
  [[noreturn]] void bad(const std::string& why) const;
  /// False at the end of the file.
  bool read(void* bytes, std::int64_t count);

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  std::vector<std::int64_t> shape_;
  c10::ScalarType dtype_ = c10::ScalarType::Byte;
  std::int64_t row_ = 0;  // bytes per row
  std::int64_t done_ = 0;
};

}  // namespace torchtap::tools
