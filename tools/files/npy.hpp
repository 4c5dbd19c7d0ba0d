#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

/// Reads and writes NumPy's .npy files. The format:
/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
namespace torchtap::tools {

/// Whether a file is an .npy file, by its suffix or its first bytes.
bool is_npy(const std::string& path);

/// Reads a `.npy` file of format version 1 to 3, in C or Fortran order, of either byte order.
///
/// uint16 is read as int32, uint32 and uint64 as int64. Checks every declared size against the file's length
/// before it allocates anything.
class NpyReader {
 public:
  /// Reads the header. Throws `c10::ValueError` that names the file and the problem, also for non-numeric
  /// dtypes.
  explicit NpyReader(const std::string& path);

  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  /// The whole array; with `map`, only the parts that are used take memory.
  at::Tensor read(bool map = false);
  /// `count` rows of the first dimension, starting at `first`. In C order only these are read. Throws
  /// `c10::ValueError` if there are too few.
  at::Tensor rows(std::int64_t first, std::int64_t count);

 private:
  [[noreturn]] void bad(const std::string& why) const;
  void parse(const std::string& header);
  at::Tensor bytes(std::int64_t first, std::int64_t count);
  at::Tensor elements(const at::Tensor& bytes);

  std::string path_;
  std::ifstream stream_;
  std::vector<std::int64_t> shape_;
  std::string descr_;  // "f4"
  bool swapped_ = false;
  bool fortran_ = false;
  std::int64_t item_ = 0;  // bytes per element
  std::int64_t data_ = 0;  // offset of the elements
  at::Tensor all_;         // cache for Fortran order, where rows are not contiguous
};

/// Writes `tensor` as a `.npy` file of version 1, in C order. bfloat16 is written as float32 and complex32 as
/// complex64, without loss. Throws `c10::ValueError` if NumPy lacks the dtype, and `c10::Error` if the file
/// cannot be written.
void write_npy(const std::string& path, const at::Tensor& tensor);

}  // namespace torchtap::tools
