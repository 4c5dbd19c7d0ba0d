// Writes and reads the bytes of frames.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/views/frames/frame.hpp>
#include <torchtap/views/frames/header.hpp>

namespace torchtap::views::frames {

namespace {

constexpr std::string_view kNames[kKinds] = {"ForwardPre",      "ForwardInput",   "ForwardOutput",
                                             "BackwardInput",   "BackwardOutput", "Other",
                                             "Parameter",       "Buffer",         "OperationArgument",
                                             "OperationResult", "Header",         "BackwardParameter"};

/// The beginning of `text` that a frame has room for.
std::string_view fitting(std::string_view text) noexcept {
  if (text.size() <= kMostText) return text;
  std::size_t end = kMostText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

[[noreturn]] void damaged(const std::string& why) {
  TORCH_CHECK_VALUE(false, "views::frames: this is not a whole frame: ", why,
                    "; the bytes are damaged, or no frame begins here.");
}

/// Checks a frame whose fixed part is `header` and of which `size` bytes are there. Returns the fault; empty
/// if the frame is valid.
std::string fault(const Header& header, std::uint64_t size) {
  const std::uint64_t texts =
      std::uint64_t{header.path_bytes} + header.type_bytes + header.text_bytes + header.result_bytes;
  if (header.frame_bytes > size)
    return c10::str("it is ", header.frame_bytes, " bytes long, but ", size, " bytes are there");
  if (header.header_bytes < sizeof(Header) + texts || header.header_bytes % kAlign != 0)
    return c10::str("its header is ", header.header_bytes, " bytes long, and its texts take ", texts);
  if (std::max({header.path_bytes, header.type_bytes, header.text_bytes, header.result_bytes}) > kMostText)
    return c10::str("one of its texts is longer than ", kMostText, " bytes");
  if (header.data_bytes > kMostData || header.frame_bytes != header.header_bytes + aligned(header.data_bytes))
    return c10::str("its data are ", header.data_bytes, " bytes, and its length is ", header.frame_bytes);
  if (header.dims > kMostDims) return c10::str("it has ", int{header.dims}, " dimensions");
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < header.dims; ++i) {
    const std::int64_t length = header.sizes[i];
    if (length < 0 || __builtin_mul_overflow(elements, static_cast<std::uint64_t>(length), &elements))
      return c10::str("its dimension ", i, " is ", length);
  }
  if ((header.flags & kWithoutData) != 0)
    return header.data_bytes == 0 ? "" : "it says that it has no data, and has some";
  const std::size_t each = element_bytes(header.dtype);
  std::uint64_t bytes = 0;
  if (each != 0 &&
      (__builtin_mul_overflow(elements, std::uint64_t{each}, &bytes) || bytes != header.data_bytes))
    return c10::str("its ", elements, " elements of ", each, " bytes do not take ", header.data_bytes,
                    " bytes");
  return {};
}

}  // namespace

std::string_view name_of(Kind kind) noexcept {
  const auto index = static_cast<std::size_t>(kind);
  return index < kKinds ? kNames[index] : "unknown";
}

Kind kind_of(std::string_view name) {
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  TORCH_CHECK_VALUE(found != std::end(kNames), "views::frames: there is no kind \"", name,
                    "\"; the kinds are ",
                    base::quoted(std::vector<std::string>(std::begin(kNames), std::end(kNames))), ".");
  return static_cast<Kind>(found - std::begin(kNames));
}

std::size_t element_bytes(std::uint8_t dtype) noexcept {
  switch (dtype) {
    case 0:   // uint8
    case 1:   // int8
    case 11:  // bool
    case 23:  // the float8s
    case 24:
    case 25:
    case 26:
    case 44:
      return 1;
    case 2:   // int16
    case 5:   // float16
    case 15:  // bfloat16
    case 27:  // uint16
      return 2;
    case 3:   // int32
    case 6:   // float32
    case 8:   // complex32
    case 28:  // uint32
      return 4;
    case 4:   // int64
    case 7:   // float64
    case 9:   // complex64
    case 29:  // uint64
      return 8;
    case 10:  // complex128
      return 16;
    default:
      return 0;
  }
}

std::uint64_t header_bytes(const Frame& frame) noexcept {
  return aligned(sizeof(Header) + fitting(frame.path).size() + fitting(frame.type).size() +
                 fitting(frame.text).size() + fitting(frame.result).size());
}

std::uint64_t frame_bytes(const Frame& frame) noexcept {
  return header_bytes(frame) + aligned(frame.data_bytes);
}

void write_header(const Frame& frame, void* to) noexcept {
  const std::string_view texts[] = {fitting(frame.path), fitting(frame.type), fitting(frame.text),
                                    fitting(frame.result)};
  Header header{};
  header.magic = kFrameMagic;
  header.version = kVersion;
  header.header_bytes = static_cast<std::uint16_t>(header_bytes(frame));
  header.frame_bytes = frame_bytes(frame);
  header.sequence = frame.sequence;
  header.time_ns = frame.time_ns;
  header.sample = frame.sample;
  header.call = frame.call;
  header.data_bytes = frame.data_bytes;
  header.readers = frame.readers;
  header.missed = frame.missed;
  header.thread = frame.thread;
  header.rank = frame.rank;
  header.checksum = frame.checksum;
  header.slot = frame.slot;
  header.path_bytes = static_cast<std::uint16_t>(texts[0].size());
  header.type_bytes = static_cast<std::uint16_t>(texts[1].size());
  header.text_bytes = static_cast<std::uint16_t>(texts[2].size());
  header.result_bytes = static_cast<std::uint16_t>(texts[3].size());
  header.kind = static_cast<std::uint8_t>(frame.kind);
  header.dtype = frame.dtype;
  header.dims = frame.dims;
  header.flags = static_cast<std::uint8_t>((frame.has_checksum ? kHasChecksum : 0) |
                                           (frame.without_data ? kWithoutData : 0));
  header.device_type = frame.device_type;
  header.device_index = frame.device_index;
  std::copy(frame.sizes.begin(), frame.sizes.begin() + std::min<std::size_t>(frame.dims, kMostDims),
            header.sizes);
  auto* at = static_cast<char*>(to);
  std::memcpy(at, &header, sizeof header);
  at += sizeof header;
  for (const std::string_view text : texts) {
    if (!text.empty()) std::memcpy(at, text.data(), text.size());
    at += text.size();
  }
  std::memset(at, 0, static_cast<std::size_t>(static_cast<char*>(to) + header.header_bytes - at));
}

std::uint64_t frame_length(const void* bytes, std::uint64_t size) {
  struct {
    std::uint32_t magic;
    std::uint16_t version, header_bytes;
    std::uint64_t frame_bytes;
  } begin;
  if (size < sizeof begin) damaged(c10::str("there are only ", size, " bytes"));
  std::memcpy(&begin, bytes, sizeof begin);
  if (begin.magic != kFrameMagic) damaged("its first four bytes are not \"TTF1\"");
  const std::string unreadable = base::unreadable_format(begin.version, kVersion);
  TORCH_CHECK_VALUE(unreadable.empty(), "views::frames: cannot read a frame: ", unreadable, ".");
  if (begin.header_bytes < sizeof(Header) || begin.frame_bytes < begin.header_bytes ||
      begin.frame_bytes % kAlign != 0 || begin.frame_bytes > kMostData + begin.header_bytes)
    damaged(c10::str("it says that it is ", begin.frame_bytes, " bytes long"));
  return begin.frame_bytes;
}

Frame read_frame(const void* bytes, std::uint64_t size) {
  frame_length(bytes, size);
  if (size < sizeof(Header)) damaged(c10::str("there are only ", size, " bytes"));
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  const std::string why = fault(header, size);
  if (!why.empty()) damaged(why);
  Frame frame;
  frame.sequence = header.sequence;
  frame.time_ns = header.time_ns;
  frame.sample = header.sample;
  frame.call = header.call;
  frame.readers = header.readers;
  frame.missed = header.missed;
  frame.thread = header.thread;
  frame.rank = header.rank;
  frame.checksum = header.checksum;
  frame.slot = header.slot;
  frame.kind = static_cast<Kind>(header.kind);
  frame.dtype = header.dtype;
  frame.dims = header.dims;
  frame.device_type = header.device_type;
  frame.device_index = header.device_index;
  frame.has_checksum = (header.flags & kHasChecksum) != 0;
  frame.without_data = (header.flags & kWithoutData) != 0;
  std::copy(header.sizes, header.sizes + header.dims, frame.sizes.begin());
  const char* at = static_cast<const char*>(bytes) + sizeof header;
  const auto text = [&](std::uint16_t length) {
    const std::string_view part(at, length);
    at += length;
    return part;
  };
  frame.path = text(header.path_bytes);
  frame.type = text(header.type_bytes);
  frame.text = text(header.text_bytes);
  frame.result = text(header.result_bytes);
  frame.data = static_cast<const char*>(bytes) + header.header_bytes;
  frame.data_bytes = header.data_bytes;
  return frame;
}

}  // namespace torchtap::views::frames
