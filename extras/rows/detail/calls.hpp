#pragma once

/// Defines `Calls`, which says of the rows of an entry which calls they are of.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <torchtap/storage/recording.hpp>

namespace torchtap::rows::detail {

/// The rows of one call.
struct CallOfRows {
  std::int64_t run = 0, forward = 0, group = 0, call = 0;
  std::int64_t rows = 0;
  std::int64_t first = 0;   ///< its first row, as they lie in the files
  std::int64_t number = 0;  ///< the same without rows that are of no call
};

/// An index, as extras/rows/FORMAT.md describes it.
class Calls {
 public:
  Calls() = default;
  /// Of an entry `KIND.calls` whose rows' entry has `rows` of them. Throws `c10::ValueError` for another
  /// format, or one that is damaged.
  Calls(const storage::RecordedEntry& entry, std::int64_t rows);
  /// Of samples that were kept without an index: each is a call with so many rows.
  explicit Calls(const std::vector<std::int64_t>& of_samples);

  /// How many rows are of calls.
  std::int64_t size() const noexcept { return size_; }
  /// Whether every row is.
  bool whole() const noexcept { return whole_; }
  /// The call of a row.
  const CallOfRows& of(std::int64_t number) const;
  const std::vector<CallOfRows>& all() const noexcept { return all_; }
  /// The first call of a group; null if there is none.
  const CallOfRows* of_group(std::int64_t run, std::int64_t group) const;

 private:
  void add(const std::int64_t* line);
  void cut(std::int64_t rows);
  void number();

  std::vector<CallOfRows> all_;  // until `number`, also what is of no call: with the group -1
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> groups_;
  std::int64_t size_ = 0, in_files_ = 0;
  bool whole_ = true;
};

}  // namespace torchtap::rows::detail
