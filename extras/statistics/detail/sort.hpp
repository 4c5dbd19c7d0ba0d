#pragma once

/// Sorts floating-point numbers by their bits, with vector instructions or a radix sort.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace torchtap::statistics::detail {

/// Sorts ascending with vector instructions. Returns false and does nothing in a build without them.
bool sort_keys(std::uint32_t* keys, std::size_t n);
bool sort_keys(std::uint64_t* keys, std::size_t n);

/// Radix sort, ascending, least significant digit first: a few nanoseconds per key regardless of the data.
/// `other` is scratch memory.
template <class Key>
void radix_sort(std::vector<Key>& keys, std::vector<Key>& other) {
  constexpr std::size_t kBits = 11, kDigit = std::size_t{1} << kBits;
  constexpr std::size_t kDigits = (8 * sizeof(Key) + kBits - 1) / kBits;
  const auto digit = [](Key key, std::size_t d) -> std::size_t { return key >> (d * kBits) & (kDigit - 1); };
  const std::size_t n = keys.size();
  if (n == 0) return;
  other.resize(n);
  std::array<std::array<std::size_t, kDigit>, kDigits> counts{};
  for (const Key key : keys) {
    for (std::size_t d = 0; d < kDigits; ++d) ++counts[d][digit(key, d)];
  }
  for (std::size_t d = 0; d < kDigits; ++d) {
    auto& count = counts[d];
    if (count[digit(keys[0], d)] == n) continue;  // all keys have the same digit
    std::size_t start = 0;
    for (auto& one : count) start += std::exchange(one, start);
    for (const Key key : keys) other[count[digit(key, d)]++] = key;
    keys.swap(other);
  }
}

/// Sorts numbers ascending, NaN last. Reuses its memory between calls.
template <class T>
class Sorter {
 public:
  using Key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

  /// Sorts the `n` numbers at `x`; decode them with `number`. Valid until the next call.
  const Key* operator()(const T* x, std::size_t n) {
    keys_.resize(n);
    std::transform(x, x + n, keys_.begin(), to_key);
    constexpr std::size_t kFew = 256;  // below, the counts of a radix sort cost more than comparing
    if (sort_keys(keys_.data(), n)) return keys_.data();
    if (n < kFew) {
      std::sort(keys_.begin(), keys_.end());
    } else {
      radix_sort(keys_, other_);
    }
    return keys_.data();
  }
  static T number(Key key) {
    const Key bits = (key & kSign) != 0 ? key & ~kSign : ~key;
    T x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }

 private:
  static constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);

  /// Maps floating-point numbers to unsigned ones in the same order.
  static Key to_key(T x) {
    Key bits;
    std::memcpy(&bits, &x, sizeof x);
    return x != x ? ~Key{0} : (bits & kSign) != 0 ? ~bits : bits | kSign;
  }

  std::vector<Key> keys_, other_;
};

}  // namespace torchtap::statistics::detail
