// Keeps series and scalars within bounds.
#include <algorithm>
#include <cstdio>
#include <random>

#include <torchtap/views/explorer/detail/run.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::size_t most_points = 8192;
constexpr std::size_t fewest_columns = 8;

}  // namespace

std::string new_identity(double started) {
  std::random_device device;  // the system's
  char text[40];
  std::snprintf(text, sizeof text, "%llx-%08x%08x", static_cast<unsigned long long>(started * 1000), device(),
                device());
  return text;
}

Run::Run(RunInfo info, std::size_t columns, std::int64_t memory)
    : info_(std::move(info)), columns_(columns), memory_(memory) {}

std::int32_t Run::series(const SeriesKey& key, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = index_.emplace(key, static_cast<std::int32_t>(series_.size()));
  if (is_new) {
    series_.push_back(std::make_unique<Series>(key, name, columns_));
    changed_.push_back(++sequence_);
    if (file_ != nullptr) file_->series(found->second, key, name);
  }
  return found->second;
}

void Run::add(std::int32_t series, const watch::Column& column) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(series);
  Series& one = *series_[index];
  bytes_ -= one.bytes();
  one.add(column, ++sequence_);
  bytes_ += one.bytes();
  changed_[index] = sequence_;
  if (file_ != nullptr) file_->column(series, column);
  if (static_cast<std::int64_t>(bytes_) > memory_) limit_memory();
}

/// Halves the columns of all series until they fit.
void Run::limit_memory() {
  while (static_cast<std::int64_t>(bytes_) > memory_ && columns_ > fewest_columns) {
    columns_ = std::max(fewest_columns, columns_ / 2);
    bytes_ = 0;
    for (std::size_t i = 0; i < series_.size(); ++i) {
      const std::uint64_t before = series_[i]->whole_since();
      series_[i]->limit(columns_, sequence_ + 1);
      if (series_[i]->whole_since() != before) changed_[i] = sequence_ + 1;
      bytes_ += series_[i]->bytes();
    }
    ++sequence_;
  }
}

void Run::add_update(std::int32_t series, std::int64_t step, double ratio) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(series);
  series_[index]->updates.add(step, ratio);
  changed_[index] = ++sequence_;
  if (file_ != nullptr) file_->update(series, step, ratio);
}

void Run::add_scalar(const std::string& name, std::int64_t step, double value) {
  const std::lock_guard lock(mutex_);
  if (file_ != nullptr) file_->scalar(name, step, value);
  auto& points = scalars_[name];
  ++sequence_;
  if (!points.empty() && points.back().first == step) {
    points.back().second = value;
    return;
  }
  points.emplace_back(step, value);
  if (points.size() < most_points) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
}

void Run::reach(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (!reached_) first_step_ = step;
  reached_ = true;
  step_ = step;
  ++sequence_;
  if (file_ != nullptr) file_->step(step);
}

void Run::restart() {
  const std::scoped_lock judging(judged.mutex);
  judged.step.reset();
  const std::lock_guard lock(mutex_);
  series_.clear();
  changed_.clear();
  index_.clear();
  scalars_.clear();
  reached_ = false;
  bytes_ = 0;
  ++sequence_;
}

void Run::renew() {
  const std::lock_guard lock(mutex_);
  ++sequence_;
  for (std::size_t i = 0; i < series_.size(); ++i) {
    series_[i]->renew(sequence_);
    changed_[i] = sequence_;
  }
}

void Run::write_to(std::shared_ptr<RunFileWriter> file) {
  const std::lock_guard lock(mutex_);
  file_ = std::move(file);
}

std::vector<watch::Column> Run::zoom(std::int32_t series, std::int64_t from, std::int64_t to) {
  const std::lock_guard lock(mutex_);
  std::vector<watch::Column> found;
  const auto index = static_cast<std::size_t>(series);
  if (series < 0 || index >= series_.size()) return found;
  for (const watch::Column& column : series_[index]->columns()) {
    if (column.first_step >= from && column.first_step <= to) found.push_back(column);
  }
  return found;
}

void Run::set_state(const std::string& state) {
  const std::lock_guard lock(mutex_);
  if (info_.state != state) ++sequence_;
  info_.state = state;
}

void Run::set_name(const std::string& name) {
  const std::lock_guard lock(mutex_);
  info_.name = name;
  ++sequence_;
  if (file_ == nullptr) return;
  file_->info(info_);
  file_->flush();  // the run may be finished
}

void Run::set_memory(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  memory_ = bytes;
  limit_memory();
}

RunInfo Run::info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

std::pair<std::int64_t, std::int64_t> Run::steps() const {
  const std::lock_guard lock(mutex_);
  return {first_step_, step_};
}

std::uint64_t Run::sequence() const {
  const std::lock_guard lock(mutex_);
  return sequence_;
}

std::int32_t Run::find(const SeriesKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  return found == index_.end() ? -1 : found->second;
}

Run::Scalars Run::scalars(std::int64_t since) const {
  const std::lock_guard lock(mutex_);
  Scalars result;
  for (const auto& [name, points] : scalars_) {
    const auto first =
        std::upper_bound(points.begin(), points.end(), since,
                         [](std::int64_t step, const auto& point) { return step < point.first; });
    result[name].assign(first, points.end());
  }
  return result;
}

std::vector<std::int32_t> Run::changed(std::uint64_t since) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int32_t> result;
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    if (changed_[i] > since) result.push_back(static_cast<std::int32_t>(i));
  }
  return result;
}

}  // namespace torchtap::views::explorer::detail
