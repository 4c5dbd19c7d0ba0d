#pragma once

/// Groups the rows of a batch by their keys.

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace torchtap::statistics::detail {

/// The rows of each key, by a counting sort where keys are small numbers.
struct RowsOfKeys {
  struct Group {
    std::int64_t key;
    c10::ArrayRef<std::int64_t> rows;  ///< ascending
  };

  explicit RowsOfKeys(c10::ArrayRef<std::int64_t> keys);
  RowsOfKeys(const RowsOfKeys&) = delete;
  RowsOfKeys& operator=(const RowsOfKeys&) = delete;

  /// The rows of all groups, group after group.
  c10::ArrayRef<std::int64_t> order() const {
    if (groups.empty()) return {};
    return {groups.front().rows.data(), rows_.size() - static_cast<std::size_t>(negative)};
  }

  std::vector<Group> groups;  ///< of the keys that came, ascending
  std::int64_t negative = 0;  ///< rows whose keys are below 0

 private:
  void count(c10::ArrayRef<std::int64_t> keys, std::int64_t largest);
  void sort(c10::ArrayRef<std::int64_t> keys);

  std::vector<std::int64_t> rows_;  // group after group
};

}  // namespace torchtap::statistics::detail
