#pragma once

// Little-endian numbers in a string of bytes, as files and messages have them.

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace torchtap::views::explorer::detail {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files and messages are little-endian");

template <class T>
void put(std::string& to, T number) {
  static_assert(std::is_arithmetic_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &number, sizeof(T));
  to.append(bytes, sizeof(T));
}

inline void put_text(std::string& to, const std::string& text) {
  put(to, static_cast<std::uint32_t>(text.size()));
  to += text;
}

/// Reads what `put` wrote. After the end, everything is 0 and `good` is false.
class Bytes {
 public:
  Bytes(const char* data, std::size_t size) noexcept : at_(data), left_(size) {}

  template <class T>
  T get() noexcept {
    T number{};
    if (left_ < sizeof(T)) {
      good_ = false;
      return number;
    }
    std::memcpy(&number, at_, sizeof(T));
    skip(sizeof(T));
    return number;
  }
  std::string text() { return text(get<std::uint32_t>()); }
  std::string text(std::size_t size) {
    if (left_ < size) good_ = false;
    if (!good_) return "";
    std::string result(at_, size);
    skip(size);
    return result;
  }
  std::string rest() { return text(left_); }

  bool good() const noexcept { return good_; }
  std::size_t left() const noexcept { return left_; }

 private:
  void skip(std::size_t size) noexcept {
    at_ += size;
    left_ -= size;
  }

  const char* at_;
  std::size_t left_;
  bool good_ = true;
};

}  // namespace torchtap::views::explorer::detail
