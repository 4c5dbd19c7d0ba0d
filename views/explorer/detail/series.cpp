// Merges older columns as the run grows.
#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/views/explorer/detail/series.hpp>

namespace torchtap::views::explorer::detail {
namespace {

std::size_t size_of(const Series::Stamped& column) {
  return sizeof(column) + column.bins.capacity();
}

}  // namespace

const char* name_of(What what) noexcept {
  switch (what) {
    case What::input:
      return "input";
    case What::output:
      return "output";
    case What::grad_input:
      return "grad_input";
    case What::grad_output:
      return "grad_output";
    case What::parameter:
      return "parameter";
    case What::parameter_grad:
      return "parameter_grad";
    case What::attach:
      return "attach";
  }
  return "";
}

void UpdateHistory::add(std::int64_t step, double ratio) {
  if (last_.size() == most) last_.erase(last_.begin());
  last_.push_back(ratio);
  rules::Facts facts;
  facts.tensor = rules::Tensor::parameter;
  facts.updates = last_;
  std::map<std::string, std::int64_t> since;
  for (const rules::Finding& finding : rules::check({facts})) {
    const auto known = since_.find(finding.rule);
    since[finding.rule] = known == since_.end() ? step : known->second;
  }
  since_ = std::move(since);
}

Series::Series(SeriesKey key, std::string name, std::size_t columns)
    : key_(key), name_(std::move(name)), most_(columns) {}

void Series::add(const watch::Column& column, std::uint64_t sequence) {
  if (column.nan != 0 && !first_nan) first_nan = column.first_step;
  if (column.posinf + column.neginf != 0 && !first_inf) first_inf = column.first_step;
  const bool same_step = steps_ != 0 && column.first_step == last_.last_step;
  if (same_step) {
    last_.merge(column);
  } else {
    last_ = column;
  }
  if (!same_step && steps_ == stride_) {
    if (columns_.size() >= most_) halve(sequence);
    if (steps_ == stride_) steps_ = 0;
  }
  if (steps_ == 0) {
    columns_.emplace_back();
    static_cast<watch::Column&>(columns_.back()) = column;
  } else {
    bytes_ -= size_of(columns_.back());
    columns_.back().merge(column);
  }
  columns_.back().changed = sequence;
  bytes_ += size_of(columns_.back());
  if (!same_step) ++steps_;
}

/// Merges neighbouring columns in pairs. With an odd number the last stays as it is, and later columns are
/// merged into it.
void Series::halve(std::uint64_t sequence) {
  std::vector<Stamped> halved;
  for (std::size_t i = 0; i < columns_.size(); i += 2) {
    halved.push_back(std::move(columns_[i]));
    if (i + 1 < columns_.size()) halved.back().merge(columns_[i + 1]);
    halved.back().bins.shrink_to_fit();
    halved.back().changed = sequence;
  }
  if (columns_.size() % 2 == 0) steps_ += stride_;
  stride_ *= 2;
  whole_since_ = sequence;
  columns_ = std::move(halved);
  bytes_ = 0;
  for (const auto& column : columns_) bytes_ += size_of(column);
}

void Series::limit(std::size_t columns, std::uint64_t sequence) {
  TORCH_CHECK_VALUE(columns >= 2, "views::explorer: a series needs at least 2 columns, got ", columns, ".");
  most_ = columns;
  while (columns_.size() > most_) halve(sequence);
}

}  // namespace torchtap::views::explorer::detail
