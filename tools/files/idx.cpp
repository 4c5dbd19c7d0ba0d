#include "idx.hpp"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace torchtap::tools {
namespace {

constexpr int kMostDimensions = 8;
constexpr std::int64_t kLargestRow = std::int64_t{1} << 40;

bool find_type(unsigned char code, c10::ScalarType& type) {
  switch (code) {
    case 0x08:
      type = c10::ScalarType::Byte;
      return true;
    case 0x09:
      type = c10::ScalarType::Char;
      return true;
    case 0x0b:
      type = c10::ScalarType::Short;
      return true;
    case 0x0c:
      type = c10::ScalarType::Int;
      return true;
    case 0x0d:
      type = c10::ScalarType::Float;
      return true;
    case 0x0e:
      type = c10::ScalarType::Double;
      return true;
    default:
      return false;
  }
}

}  // namespace

void IdxReader::bad(const std::string& why) const {
  TORCH_CHECK_VALUE(false, "cannot read \"", path_, "\": ", why, ".");
}

bool IdxReader::read(void* bytes, std::int64_t count) {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const int got = ::gzread(file_.get(), to, static_cast<unsigned>(std::min<std::int64_t>(count, 1 << 20)));
    int code = 0;
    if (got < 0) bad(::gzerror(file_.get(), &code));
    if (got == 0) {
      ::gzerror(file_.get(), &code);
      if (code == Z_BUF_ERROR) bad("its gzip stream ends too early");
      return false;
    }
    to += got;
    count -= got;
  }
  return true;
}

IdxReader::IdxReader(const std::string& path) : path_(path), file_(::gzopen(path.c_str(), "rb"), ::gzclose) {
  if (file_ == nullptr) bad(std::strerror(errno));
  std::array<unsigned char, 4> head{};
  if (!read(head.data(), 4) || head[0] != 0 || head[1] != 0 || !find_type(head[2], dtype_)) {
    bad("it is not an idx file");
  }
  if (head[3] < 1 || head[3] > kMostDimensions) {
    bad(c10::str("it declares ", static_cast<int>(head[3]), " dimensions; expected 1 to ", kMostDimensions));
  }
  row_ = static_cast<std::int64_t>(c10::elementSize(dtype_));
  for (int i = 0; i < head[3]; ++i) {
    std::array<unsigned char, 4> size{};
    if (!read(size.data(), 4)) bad("it ends too early");
    shape_.push_back((std::int64_t{size[0]} << 24) | (size[1] << 16) | (size[2] << 8) | size[3]);
    if (i > 0 && shape_.back() > 0 && row_ > kLargestRow / shape_.back()) {
      bad(c10::str("it declares the shape ", at::IntArrayRef(shape_), " …; it is damaged"));
    }
    if (i > 0) row_ *= shape_.back();
  }
}

at::Tensor IdxReader::next(std::int64_t count) {
  count = std::min(count, shape_[0] - done_);
  // Grows with the data present, as the declared sizes may be wrong.
  std::vector<char> bytes;
  const std::int64_t total = row_ > 0 && count > kLargestRow / row_ ? kLargestRow : count * row_;
  while (static_cast<std::int64_t>(bytes.size()) < total) {
    const auto before = static_cast<std::int64_t>(bytes.size());
    const std::int64_t piece = std::min<std::int64_t>(total - before, 1 << 24);
    bytes.resize(static_cast<std::size_t>(before + piece));
    if (!read(bytes.data() + before, piece)) {
      bad(c10::str("it ends before the ", shape_[0], " rows that it declares"));
    }
  }
  done_ += count;
  char more = 0;
  if (done_ == shape_[0] && count > 0 && read(&more, 1)) {
    bad(c10::str("it has data after the ", shape_[0], " rows that it declares"));
  }
  const auto unit = static_cast<std::ptrdiff_t>(c10::elementSize(dtype_));
  if (unit > 1) {  // big-endian
    for (auto at = bytes.begin(); at != bytes.end(); at += unit) std::reverse(at, at + unit);
  }
  std::vector<std::int64_t> shape = shape_;
  shape[0] = count;
  at::Tensor tensor = at::empty(shape, dtype_);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace torchtap::tools
