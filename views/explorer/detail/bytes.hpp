#pragma once

// Numbers and texts in a string of bytes, as files and messages have them.

#include <cstdint>
#include <string>

#include <torchtap/base/little_endian.hpp>

namespace torchtap::views::explorer::detail {

using base::put_number;

inline void put_text(std::string& to, const std::string& text) {
  put_number(to, static_cast<std::uint32_t>(text.size()));
  to += text;
}

/// Reads the bytes that these functions write.
class Bytes : public base::ByteReader {
 public:
  using ByteReader::ByteReader;
  using ByteReader::text;
  std::string text() { return text(get<std::uint32_t>()); }
  std::string rest() { return text(left()); }
};

}  // namespace torchtap::views::explorer::detail
