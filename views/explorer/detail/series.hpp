#pragma once

// Columns over time, in bounded memory.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <torchtap/views/explorer/detail/graph.hpp>
#include <torchtap/views/watch/column.hpp>

namespace torchtap::views::explorer::detail {

enum class What : std::uint8_t { input, output, grad_input, grad_output, parameter, parameter_grad, attach };
constexpr std::size_t whats = 7;
/// "grad_input".
const char* name_of(What what) noexcept;

/// The change of a parameter by the optimizer, relative to its norm, in the last known steps.
class UpdateHistory {
 public:
  static constexpr std::size_t most = 16;

  void add(std::int64_t step, double ratio);
  /// Oldest first.
  const std::vector<double>& last() const noexcept { return last_; }
  /// For each rule that holds for them, the step since when it does.
  const std::map<std::string, std::int64_t>& since() const noexcept { return since_; }

 private:
  std::vector<double> last_;
  std::map<std::string, std::int64_t> since_;
};

/// The tensor that a series follows.
struct SeriesKey {
  std::int32_t call = 0;
  What what = What::input;
  std::int32_t index = 0;
  std::int32_t mode = 0;  // a Mode; -1 for parameters and their gradients

  friend bool operator<(const SeriesKey& a, const SeriesKey& b) noexcept {
    return std::tie(a.call, a.what, a.index, a.mode) < std::tie(b.call, b.what, b.index, b.mode);
  }
};

/// At most `columns` columns. When they are full, neighbours are merged, exactly, and from then on each
/// column takes in twice as many steps.
class Series {
 public:
  struct Stamped : watch::Column {
    std::uint64_t changed = 0;
  };

  Series(SeriesKey key, std::string name, std::size_t columns);

  const SeriesKey& key() const noexcept { return key_; }
  const std::string& name() const noexcept { return name_; }
  /// Adds values of a step: the last one, whose column they join, or a later one. `sequence` has to grow.
  void add(const watch::Column& column, std::uint64_t sequence);
  /// Merges neighbours until there are at most this many. Throws `c10::ValueError` for fewer than 2.
  void limit(std::size_t columns, std::uint64_t sequence);

  const std::vector<Stamped>& columns() const noexcept { return columns_; }
  /// Number of steps that a column takes in.
  std::uint64_t stride() const noexcept { return stride_; }
  /// When neighbours were merged last.
  std::uint64_t whole_since() const noexcept { return whole_since_; }
  /// Has all columns sent again.
  void renew(std::uint64_t sequence) noexcept { whole_since_ = sequence; }
  /// The values at the last step.
  const watch::Column& last() const noexcept { return last_; }
  std::optional<std::int64_t> first_nan, first_inf;

  UpdateHistory updates;
  /// About.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void halve(std::uint64_t sequence);

  SeriesKey key_;
  std::string name_;
  std::size_t most_;
  std::vector<Stamped> columns_;
  std::uint64_t stride_ = 1, whole_since_ = 0;
  std::uint64_t steps_ = 0;  // in the last column
  std::size_t bytes_ = 0;
  watch::Column last_;
};

}  // namespace torchtap::views::explorer::detail
