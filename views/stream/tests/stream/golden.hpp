#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/crc32.hpp>
#include <torchtap/views/stream/frame.hpp>

/// The frames of tests/formats/1/frames.bin, made anew. tests/stream/format.py knows them, too.
namespace torchtap_test {

namespace stream = torchtap::views::stream;

struct Golden {
  std::vector<std::string> texts;
  std::vector<std::vector<unsigned char>> data;
  std::vector<stream::Frame> frames;  // point into the others
};

/// Byte `i` of the data of frame `n` is `(7 n + 13 i) mod 251`.
inline Golden golden_frames() {
  Golden golden;
  const std::vector<std::uint8_t> dtypes{0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10,
                                         11, 15, 23, 24, 25, 26, 27, 28, 29, 44};
  const std::size_t count = dtypes.size() + 3;
  golden.texts.reserve(4 * count);
  golden.data.reserve(count);
  for (std::size_t n = 0; n < count; ++n) {
    stream::Frame frame;
    frame.sequence = 1000 + n;
    frame.time_ns = 1700000000000000000ULL + n;
    frame.sample = 10 * n;
    frame.call = n % 3;
    frame.readers = std::uint64_t{1} << n;
    frame.missed = n;
    frame.thread = static_cast<std::uint32_t>(n % 4);
    frame.rank = static_cast<std::uint32_t>(n % 5);
    frame.slot = static_cast<std::uint16_t>(n % 7);
    frame.kind = static_cast<stream::Kind>(n % 6);  // those there were then
    frame.dtype = n < dtypes.size() ? dtypes[n] : std::uint8_t{6};
    frame.dims = static_cast<std::uint8_t>(n % (stream::kMostDims + 1));
    frame.device_type = static_cast<std::int8_t>(n % 2);
    frame.device_index = static_cast<std::int8_t>(n % 2 == 0 ? -1 : n % 8);
    frame.has_checksum = n % 2 == 1;
    std::uint64_t elements = 1;
    for (std::size_t i = 0; i < frame.dims; ++i) {
      frame.sizes[i] = n == dtypes.size() ? 0 : static_cast<std::int64_t>(1 + (n + i) % 3);  // one is empty
      elements *= static_cast<std::uint64_t>(frame.sizes[i]);
    }
    const bool last = n == count - 1;
    frame.without_data = last;
    frame.data_bytes = last ? 0 : elements * stream::element_bytes(frame.dtype);
    golden.data.emplace_back(frame.data_bytes);
    for (std::size_t i = 0; i < frame.data_bytes; ++i) {
      golden.data.back()[i] = static_cast<unsigned char>((7 * n + 13 * i) % 251);
    }
    frame.data = golden.data.back().data();
    if (frame.has_checksum) {
      frame.checksum = torchtap::base::crc32(0, frame.data, frame.data_bytes);
    }
    const auto text = [&](std::string value) {
      return std::string_view(golden.texts.emplace_back(std::move(value)));
    };
    frame.path = text(n == 0 ? "" : "layer" + std::to_string(n) + ".0.conv");
    frame.type = text(n % 2 == 0 ? "Conv2d" : "");
    frame.text = text(last ? "the tensor is sparse" : n % 3 == 0 ? "épochè " + std::to_string(n) : "");
    frame.result = text(n % 4 == 0 ? "mean" : "");
    golden.frames.push_back(frame);
  }
  return golden;
}

}  // namespace torchtap_test
