#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

/// NumPy's files of one array. The format:
/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
namespace torchtap::tools {

/// Reads a `.npy` file of format version 1 to 3, in C or Fortran order, of either byte order.
///
/// uint16 is read as int32, uint32 and uint64 as int64. Every size that the file claims is checked against
/// its length before anything is allocated.
class NpyReader {
 public:
  /// Reads the header. Throws `c10::ValueError` naming the file and what is wrong with it, also for dtypes
  /// that are no numbers.
  explicit NpyReader(const std::string& path);

  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  /// The whole array.
  at::Tensor read();
  /// `count` rows of the first dimension, from `first` on. In C order only these are read. Throws
  /// `c10::ValueError` if there are not as many.
  at::Tensor rows(std::int64_t first, std::int64_t count);

 private:
  [[noreturn]] void bad(const std::string& why) const;
  void parse(const std::string& header);
  at::Tensor elements(std::int64_t first, std::int64_t count);

  std::string path_;
  std::ifstream stream_;
  std::vector<std::int64_t> shape_;
  std::string descr_;  // "f4"
  bool swapped_ = false;
  bool fortran_ = false;
  std::int64_t item_ = 0;  // bytes an element
  std::int64_t data_ = 0;  // where the elements begin
  at::Tensor all_;         // in Fortran order, rows are all over the file: kept once read
};

/// Writes `tensor` as a `.npy` file of version 1, in C order. bfloat16 becomes float32 and complex32
/// complex64, which hold all their values. Throws `c10::ValueError` if the dtype has no counterpart, and
/// `c10::Error` if the file cannot be written.
void write_npy(const std::string& path, const at::Tensor& tensor);

}  // namespace torchtap::tools
