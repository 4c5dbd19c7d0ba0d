#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace torchtap::tools {

/// A line on stderr that says how far something has come, drawn only if stderr is a terminal.
///
///     Progress progress("recording", inputs.count());
///     for (…) progress.advance();
///
/// Redrawn at most ten times a second and wiped at the end, so that what is printed afterwards starts on a
/// clean line.
class Progress {
 public:
  /// `total` 0: unknown, the number alone is shown.
  explicit Progress(std::string what, std::int64_t total = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t steps = 1);

 private:
  using Clock = std::chrono::steady_clock;
  void draw() const;

  std::string what_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool shown_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_;
};

}  // namespace torchtap::tools
