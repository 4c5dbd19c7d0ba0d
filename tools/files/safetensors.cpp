#include "safetensors.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "dtypes.hpp"
#include "files.hpp"
#include "json.hpp"
#include "terminal/message.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools {
namespace {

constexpr std::uint64_t kBegin = 8;                    // of the header, after the field with its length
constexpr std::uint64_t kLongestHeader = 100'000'000;  // as in the reference implementation
constexpr std::size_t kMostDims = 64;                  // of LibTorch's operations
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// A tensor as the header describes it.
struct Part {
  std::string name;
  at::ScalarType dtype = at::kByte;
  std::int64_t item = 1;  // bytes of an element
  bool widen = false;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes after the header
};

std::vector<std::int64_t> numbers(const json::Reader& list) {
  const auto all = list.get<std::vector<std::int64_t>>();
  list.check(std::all_of(all.begin(), all.end(), [](std::int64_t one) { return one >= 0; }),
             "numbers of 0 or more");
  return all;
}

void set_dtype(Part& part, const std::string& name) {
  const auto& all = base::dtypes();
  const auto known = std::find_if(all.begin(), all.end(), [&](const base::Dtype& dtype) {
    return !name.empty() && name == dtype.safetensors;
  });
  part.widen = name == "U16" || name == "U32" || name == "U64";
  const bool complex = name == "C64";  // which older readers do not know, so that nothing writes it
  TORCH_CHECK_VALUE(part.widen || complex || known != all.end(), "this LibTorch has no dtype \"", name, "\"");
  if (!part.widen) part.dtype = complex ? at::kComplexFloat : known->type;
  part.item =
      part.widen ? std::stoll(name.substr(1)) / 8 : static_cast<std::int64_t>(c10::elementSize(part.dtype));
}

Part parse(const std::string& name, const json::Reader& tensor) {
  Part part;
  part.name = name;
  set_dtype(part, tensor.get<std::string>("dtype"));
  part.shape = numbers(tensor.at("shape"));
  const auto offsets = numbers(tensor.at("data_offsets"));
  TORCH_CHECK_VALUE(part.shape.size() <= kMostDims, "it has ", part.shape.size(), " dimensions");
  TORCH_CHECK_VALUE(offsets.size() == 2 && offsets[0] <= offsets[1], "its data_offsets are ",
                    at::IntArrayRef(offsets));
  part.begin = offsets[0];
  part.end = offsets[1];
  // Sizes of 0 do not excuse the others: strides are computed from them.
  std::int64_t bytes = part.item;
  for (const auto size : part.shape) {
    TORCH_CHECK_VALUE(size == 0 || bytes <= kMost / size, "its shape is ", at::IntArrayRef(part.shape));
    bytes *= std::max<std::int64_t>(size, 1);
  }
  if (std::count(part.shape.begin(), part.shape.end(), 0) > 0) bytes = 0;
  TORCH_CHECK_VALUE(bytes == part.end - part.begin, "its shape ", at::IntArrayRef(part.shape), " takes ",
                    bytes, " bytes, and its data_offsets are ", at::IntArrayRef(offsets));
  return part;
}

/// The tensors in the order of their bytes, which they cover exactly.
std::vector<Part> parse_header(const std::string& text, std::uint64_t data) {
  const Json header = json::parse_object(text);
  TORCH_CHECK_VALUE(header.is_object(), "its header is no JSON object; it is damaged");
  std::vector<Part> parts;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      parts.push_back(parse(name, json::Reader(tensor)));
    } catch (const std::exception& error) {
      TORCH_CHECK_VALUE(false, "of its tensor \"", name, "\": ", message_of(error));
    }
  }
  const auto places = [](const Part& part) { return std::pair(part.begin, part.end); };
  std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return places(a) < places(b); });
  std::int64_t end = 0;
  for (const Part& part : parts) {
    TORCH_CHECK_VALUE(part.begin == end, "its tensor \"", part.name, "\" begins at byte ", part.begin,
                      ", and the one before ends at ", end);
    end = part.end;
  }
  TORCH_CHECK_VALUE(static_cast<std::uint64_t>(end) == data, "its tensors take ", end, " bytes, and ", data,
                    " follow");
  return parts;
}

}  // namespace

bool is_safetensors(const std::string& path) {
  if (std::filesystem::path(path).extension() == ".safetensors") return true;
  if (!std::filesystem::is_regular_file(path)) return false;
  char head[kBegin + 1] = {};  // a length of less than 4 GiB, and an object
  open_to_read(path).read(head, sizeof head);
  return std::count(head + 4, head + kBegin, '\0') == 4 && head[kBegin] == '{';
}

core::Value read_safetensors(const std::string& path) {
  const auto file = base::InputFile::open("load", path);
  unsigned char field[kBegin];
  file.read_at(0, field, kBegin);
  std::uint64_t length = 0;
  for (std::size_t i = kBegin; i-- > 0;) length = length << 8 | field[i];
  if (length > kLongestHeader || length > file.size() - kBegin) {
    file.bad(c10::str("it declares a header of ", length, " bytes; it is damaged, or no .safetensors file"));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read_at(kBegin, text.data(), text.size());
  try {
    core::Value::Dict tensors;
    for (const Part& part : parse_header(text, file.size() - kBegin - length)) {
      const at::Tensor bytes = mapped(file, kBegin + length + static_cast<std::uint64_t>(part.begin),
                                      part.end - part.begin, part.item);
      const at::Tensor flat = part.widen                ? widened(bytes, part.item)
                              : part.dtype == at::kBool ? bytes.ne(0)  // any byte may be there
                                                        : bytes.view(part.dtype);
      tensors.emplace_back(part.name, flat.view(part.shape));
    }
    return tensors;
  } catch (const std::exception& error) {
    file.bad(printable(message_of(error)));
  }
}

}  // namespace torchtap::tools
