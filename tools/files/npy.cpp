#include "npy.hpp"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <regex>
#include <sstream>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/write_file.hpp>

#include "dtypes.hpp"
#include "files.hpp"
#include "terminal/message.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr std::size_t kMagicSize = 6;
constexpr std::int64_t kLargestHeader = 8192;  // a header of plain numbers is smaller; std::regex recurses

std::int64_t length(std::ifstream& stream) {
  stream.seekg(0, std::ios::end);
  const auto end = static_cast<std::int64_t>(stream.tellg());
  stream.seekg(0);
  return end;
}

}  // namespace

bool is_npy(const std::string& path) {
  if (std::filesystem::path(path).extension() == ".npy") return true;
  if (!std::filesystem::is_regular_file(path)) return false;
  char head[kMagicSize] = {};
  open_to_read(path).read(head, sizeof head);
  return std::memcmp(head, kMagic, kMagicSize) == 0;
}

void NpyReader::bad(const std::string& why) const {
  TORCH_CHECK_VALUE(false, "cannot read \"", path_, "\": ", why, ".");
}

NpyReader::NpyReader(const std::string& path) : path_(path), stream_(open_to_read(path)) {
  const std::int64_t size = length(stream_);
  unsigned char head[12] = {};
  stream_.read(reinterpret_cast<char*>(head), 10);
  if (!stream_ || std::memcmp(head, kMagic, kMagicSize) != 0) bad("it is not a .npy file");
  const int version = head[6];
  if (version < 1 || version > 3) {
    bad(c10::str("it has format version ", version, "; expected 1, 2 or 3"));
  }
  std::int64_t header = head[8] | (head[9] << 8);
  data_ = 10;
  if (version > 1) {
    stream_.read(reinterpret_cast<char*>(head) + 10, 2);
    if (!stream_) bad("it ends too early");
    header |= (std::int64_t{head[10]} << 16) | (std::int64_t{head[11]} << 24);
    data_ = 12;
  }
  if (header > kLargestHeader || header > size - data_) {
    bad(c10::str("it declares a header of ", header, " bytes; it is damaged"));
  }
  std::string text(static_cast<std::size_t>(header), '\0');
  stream_.read(text.data(), header);
  if (!stream_) bad("it ends too early");
  data_ += header;
  text.erase(text.find_last_not_of(" \n") + 1);  // padding
  parse(text);
  std::int64_t elements = 1;
  for (const auto count : shape_) {
    const bool fits = count == 0 || elements <= (size - data_) / count;
    if (!fits) elements = size;  // more than the file holds; reported below
    if (fits) elements *= count;
  }
  if (elements > (size - data_) / item_ || elements * item_ != size - data_) {
    bad(c10::str("it declares the shape ", at::IntArrayRef(shape_), " of ", item_,
                 " bytes per element, but has ", size - data_, " bytes of data"));
  }
}

void NpyReader::parse(const std::string& header) {
  // The header is a Python dict literal with these three keys in any order.
  const auto value = [&](const std::string& key, const std::string& pattern) {
    std::smatch match;
    if (!std::regex_search(header, match, std::regex("['\"]" + key + "['\"]\\s*:\\s*" + pattern))) {
      bad("its header has no readable \"" + key + "\": " + printable(header));
    }
    return match[1].str();
  };
  const std::string descr = value("descr", "(\\[|['\"][^'\"]*['\"])");
  if (descr == "[") bad("it holds records; expected numbers");
  fortran_ = value("fortran_order", "(True|False)") == "True";
  const std::string shape = value("shape", "\\(([0-9L, \\s]*)\\)");

  const std::string type = descr.substr(1, descr.size() - 2);
  static const std::regex known("([<>|=])(f[248]|[iu][1248]|b1|c8|c16)");
  std::smatch parts;
  if (!std::regex_match(type, parts, known)) {
    bad("its elements are of type \"" + printable(type) +
        "\"; expected bool, int, uint, float or complex of 1 to 16 bytes");
  }
  swapped_ = parts[1] == ">";
  descr_ = parts[2];
  item_ = std::stoll(descr_.substr(1));

  std::istringstream numbers(shape);
  for (std::string number; std::getline(numbers, number, ',');) {
    const auto from = number.find_first_of("0123456789");
    if (from == std::string::npos) continue;  // after the comma of "(3,)"
    try {
      shape_.push_back(std::stoll(number.substr(from)));
    } catch (const std::out_of_range&) {
      bad("it declares the shape (" + shape + "); it is damaged");
    }
  }
}

at::Tensor NpyReader::bytes(std::int64_t first, std::int64_t count) {
  at::Tensor bytes = at::empty({count * item_}, at::kByte);
  stream_.clear();
  stream_.seekg(data_ + first * item_);
  stream_.read(static_cast<char*>(bytes.data_ptr()), count * item_);
  if (!stream_) bad("it became shorter while being read");
  return bytes;
}

at::Tensor NpyReader::elements(const at::Tensor& bytes) {
  if (swapped_) {
    const std::int64_t unit = descr_[0] == 'c' ? item_ / 2 : item_;
    auto* from = static_cast<char*>(bytes.data_ptr());
    for (auto* at = from; at < from + bytes.numel(); at += unit) std::reverse(at, at + unit);
  }
  try {
    if (descr_[0] == 'u' && item_ > 1) return widened(bytes, item_);
  } catch (const std::exception& error) {
    bad(message_of(error));
  }
  if (descr_ == "b1") return bytes.ne(0);  // any nonzero byte is true
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kLong, at::kInt, at::kShort, at::kChar,
                          at::kByte, at::kComplexFloat, at::kComplexDouble}) {
    if (descr_ == base::dtype_by_type(type)->npy) return bytes.view(type);
  }
  bad("its dtype is unknown");
}

at::Tensor NpyReader::read(bool map) {
  std::int64_t count = 1;
  for (const auto size : shape_) count *= size;
  const at::Tensor flat = elements(map ? mapped(base::InputFile::open("load", path_),
                                                static_cast<std::uint64_t>(data_), count * item_, item_)
                                       : bytes(0, count));
  if (!fortran_) return flat.view(shape_);
  const std::vector<std::int64_t> reversed(shape_.rbegin(), shape_.rend());
  std::vector<std::int64_t> order;
  for (auto i = static_cast<std::int64_t>(shape_.size()); i > 0; --i) order.push_back(i - 1);
  return flat.view(reversed).permute(order).contiguous();
}

at::Tensor NpyReader::rows(std::int64_t first, std::int64_t count) {
  TORCH_CHECK_VALUE(!shape_.empty() && first >= 0 && count >= 0 && count <= shape_[0] - first, "\"", path_,
                    "\" has the shape ", at::IntArrayRef(shape_), ", so there are no rows ", first, " to ",
                    first + count, ".");
  if (fortran_) {
    if (!all_.defined()) all_ = read();
    return all_.narrow(0, first, count);
  }
  std::int64_t row = 1;
  for (std::size_t i = 1; i < shape_.size(); ++i) row *= shape_[i];
  std::vector<std::int64_t> shape = shape_;
  shape[0] = count;
  return elements(bytes(first * row, count * row)).view(shape);
}

void write_npy(const std::string& path, const at::Tensor& tensor) {
  at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  if (plain.scalar_type() == at::kBFloat16) plain = plain.to(at::kFloat);
  if (plain.scalar_type() == at::kComplexHalf) plain = plain.to(at::kComplexFloat);
  const base::Dtype* dtype = base::dtype_by_type(plain.scalar_type());
  TORCH_CHECK_VALUE(dtype != nullptr && dtype->npy[0] != '\0', "\"", path, "\": NumPy has no dtype for ",
                    plain.scalar_type(), ".");
  std::string shape;
  for (const auto size : plain.sizes()) shape += std::to_string(size) + ",";
  std::string header = c10::str("{'descr': '", plain.element_size() == 1 ? "|" : "<", dtype->npy,
                                "', 'fortran_order': False, 'shape': (", shape, "), }");
  // The data must begin at a multiple of 64 bytes.
  header += std::string((64 - (10 + header.size() + 1) % 64) % 64, ' ') + "\n";
  const auto write = [&](std::ostream& stream) {
    stream.write(kMagic, kMagicSize);
    const char rest[] = {1, 0, static_cast<char>(header.size() & 0xff),
                         static_cast<char>(header.size() >> 8)};
    stream.write(rest, sizeof rest);
    stream << header;
    stream.write(static_cast<const char*>(plain.data_ptr()), static_cast<std::streamsize>(plain.nbytes()));
  };
  base::write_file("convert", path, write, /*sync=*/false);
}

}  // namespace torchtap::tools
