// Groups rows by their keys, with a counting sort where keys are small and a stable sort elsewhere.

#include <algorithm>
#include <cstddef>
#include <memory>

#include <torchtap/statistics/detail/rows_of_keys.hpp>

namespace torchtap::statistics::detail {
namespace {

constexpr std::size_t kMarks = 64;  // of a word that marks keys

}  // namespace

RowsOfKeys::RowsOfKeys(c10::ArrayRef<std::int64_t> keys) : rows_(keys.size()) {
  constexpr std::int64_t kDense = 4096;  // keys, or as many as there are rows: a table of these is small
  std::int64_t largest = -1;
  for (const std::int64_t key : keys) {
    largest = std::max(largest, key);
    negative += key < 0 ? 1 : 0;
  }
  if (largest < std::max(kDense, static_cast<std::int64_t>(keys.size()))) {
    count(keys, largest);
  } else {
    sort(keys);
  }
}

/// Only those entries of the table are touched whose keys came.
void RowsOfKeys::count(c10::ArrayRef<std::int64_t> keys, std::int64_t largest) {
  const auto size = static_cast<std::size_t>(largest + 1);
  std::vector<std::uint64_t> came(size / kMarks + 1, 0);
  const std::unique_ptr<std::int64_t[]> table(new std::int64_t[size]);
  std::size_t number = 0;
  for (const std::int64_t key : keys) {
    if (key < 0) continue;
    const auto k = static_cast<std::size_t>(key);
    const std::uint64_t bit = std::uint64_t{1} << k % kMarks;
    if ((came[k / kMarks] & bit) == 0) {
      came[k / kMarks] |= bit;
      table[k] = 0;
      ++number;
    }
    ++table[k];
  }
  groups.reserve(number);
  std::int64_t from = 0;
  for (std::size_t word = 0; word < came.size(); ++word) {
    for (std::uint64_t left = came[word]; left != 0; left &= left - 1) {
      const auto k = word * kMarks + static_cast<std::size_t>(__builtin_ctzll(left));
      const std::int64_t rows = table[k];
      groups.push_back({static_cast<std::int64_t>(k), {rows_.data() + from, static_cast<std::size_t>(rows)}});
      table[k] = from;
      from += rows;
    }
  }
  for (std::size_t row = 0; row < keys.size(); ++row) {
    if (keys[row] < 0) continue;
    std::int64_t& place = table[static_cast<std::size_t>(keys[row])];
    rows_[static_cast<std::size_t>(place++)] = static_cast<std::int64_t>(row);
  }
}

void RowsOfKeys::sort(c10::ArrayRef<std::int64_t> keys) {
  const auto key = [&](std::int64_t row) { return keys[static_cast<std::size_t>(row)]; };
  for (std::size_t row = 0; row < rows_.size(); ++row) rows_[row] = static_cast<std::int64_t>(row);
  std::stable_sort(rows_.begin(), rows_.end(), [&](auto a, auto b) { return key(a) < key(b); });
  for (auto from = static_cast<std::size_t>(negative), to = from; from < rows_.size(); from = to) {
    while (to < rows_.size() && key(rows_[to]) == key(rows_[from])) ++to;
    groups.push_back({key(rows_[from]), {rows_.data() + from, to - from}});
  }
}

}  // namespace torchtap::statistics::detail
