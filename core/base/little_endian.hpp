#pragma once

/// Numbers as bytes, the lowest first, as files and messages have them; and numbers of seven bits a byte
/// (LEB128).

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace torchtap::base {

/// Appends the lowest `size` bytes of `number`.
inline void put_bytes(std::string& to, std::uint64_t number, int size) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>((number >> (8 * i)) & 0xFF);
  to.append(bytes, static_cast<std::size_t>(size));
}
/// The number that `size` bytes are, at most 8.
inline std::uint64_t get_bytes(const char* bytes, int size) noexcept {
  std::uint64_t number = 0;
  for (int i = 0; i < size; ++i)
    number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return number;
}

namespace detail {

template <class T>
using BitsOf =
    std::conditional_t<sizeof(T) == 8, std::uint64_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                          std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

}  // namespace detail

/// Appends an integer or a floating-point number.
template <class T>
void put_number(std::string& to, T number) {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
  detail::BitsOf<T> bits;
  std::memcpy(&bits, &number, sizeof bits);
  put_bytes(to, bits, sizeof bits);
}
/// Reads a number that `put_number` wrote.
template <class T>
T get_number(const char* bytes) noexcept {
  const auto bits = static_cast<detail::BitsOf<T>>(get_bytes(bytes, sizeof(T)));
  T number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

/// Appends a number of seven bits a byte, the lowest first.
inline void put_varint(std::string& to, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) to.push_back(static_cast<char>(number | 0x80));
  to.push_back(static_cast<char>(number));
}

/// Takes numbers from the front of bytes. After the end, everything is 0 or empty, and `good` is false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) noexcept : left_(bytes) {}

  template <class T>
  T get() noexcept {
    const std::string_view bytes = take(sizeof(T));
    return good_ ? get_number<T>(bytes.data()) : T{};
  }
  std::uint64_t varint() noexcept {
    std::uint64_t number = 0;
    for (int shift = 0; good_; shift += 7) {
      const auto byte = get<std::uint8_t>();
      good_ = good_ && shift < 64;
      if (good_) number |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) break;
    }
    return number;
  }
  std::string text(std::size_t size) { return std::string(take(size)); }

  bool good() const noexcept { return good_; }
  std::size_t left() const noexcept { return left_.size(); }

 private:
  std::string_view take(std::size_t size) noexcept {
    good_ = good_ && size <= left_.size();
    if (!good_) return {};
    const std::string_view part = left_.substr(0, size);
    left_.remove_prefix(size);
    return part;
  }

  std::string_view left_;
  bool good_ = true;
};

/// Counts of bins in ascending order of their numbers: for each two varints, its number minus the number of
/// the bin before it, and its count.
template <class Count>
std::string packed_counts(const std::vector<std::pair<std::uint32_t, Count>>& bins) {
  std::string packed;
  std::uint32_t before = 0;
  for (const auto& [bin, count] : bins) {
    put_varint(packed, bin - before);
    put_varint(packed, static_cast<std::uint64_t>(count));
    before = bin;
  }
  return packed;
}
/// Reads counts that `packed_counts` wrote. False if it is damaged: also for a bin from `end` on, and for a
/// count of 0 or above `most`.
template <class Count>
bool unpack_counts(std::string_view packed, std::uint32_t end, std::uint64_t most,
                   std::vector<std::pair<std::uint32_t, Count>>& bins) {
  ByteReader reader(packed);
  std::uint64_t bin = 0;
  while (reader.left() != 0 && reader.good()) {
    const std::uint64_t step = reader.varint(), count = reader.varint();
    if ((step == 0 && !bins.empty()) || step >= end || bin + step >= end || count == 0 || count > most)
      return false;
    bin += step;
    bins.emplace_back(static_cast<std::uint32_t>(bin), static_cast<Count>(count));
  }
  return reader.good();
}

}  // namespace torchtap::base
