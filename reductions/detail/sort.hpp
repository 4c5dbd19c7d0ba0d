#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace torchtap::reductions::detail {

/// Sorts numbers ascending, NaN last, digit by digit from the least: a few nanoseconds each, whatever the
/// data. Memory is kept for the next call.
template <class T>
class Sorter {
 public:
  /// `n` numbers from `x`; valid until the next call.
  const T* operator()(const T* x, std::size_t n) {
    keys_.resize(n);
    other_.resize(n);
    sorted_.resize(n);
    std::array<std::array<std::size_t, kDigit>, kDigits> counts{};
    for (std::size_t i = 0; i < n; ++i) {
      keys_[i] = to_key(x[i]);
      for (std::size_t d = 0; d < kDigits; ++d) ++counts[d][digit(keys_[i], d)];
    }
    for (std::size_t d = 0; d < kDigits; ++d) {
      auto& count = counts[d];
      if (n == 0 || count[digit(keys_[0], d)] == n) continue;  // all alike
      std::size_t start = 0;
      for (auto& one : count) start += std::exchange(one, start);
      for (const Key key : keys_) other_[count[digit(key, d)]++] = key;
      keys_.swap(other_);
    }
    std::transform(keys_.begin(), keys_.end(), sorted_.begin(), from_key);
    return sorted_.data();
  }

 private:
  using Key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static constexpr std::size_t kBits = 11, kDigit = std::size_t{1} << kBits;
  static constexpr std::size_t kDigits = (8 * sizeof(Key) + kBits - 1) / kBits;
  static constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);

  static std::size_t digit(Key key, std::size_t d) { return key >> (d * kBits) & (kDigit - 1); }
  /// Unsigned numbers in the order of the floating-point ones.
  static Key to_key(T x) {
    Key bits;
    std::memcpy(&bits, &x, sizeof x);
    return x != x ? ~Key{0} : (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
  static T from_key(Key key) {
    const Key bits = (key & kSign) != 0 ? key & ~kSign : ~key;
    T x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }

  std::vector<Key> keys_, other_;
  std::vector<T> sorted_;
};

}  // namespace torchtap::reductions::detail
