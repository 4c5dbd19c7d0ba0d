#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace torchtap::tools {

/// A progress line on stderr, drawn only if stderr is a terminal.
///
///     Progress progress("recording", inputs.count());
///     for (…) progress.advance();
///
/// From the second second on it says how long the rest will take. Redrawn at most ten times a second and
/// wiped at the end, so that later output starts on a clean line.
class Progress {
 public:
  /// If `total` is 0 it is unknown, and only the count is shown.
  explicit Progress(std::string what, std::int64_t total = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t steps = 1);
  /// Whether any progress is drawn; on at first.
  static void show(bool on) noexcept { allowed_ = on; }

 private:
  using Clock = std::chrono::steady_clock;
  void draw() const;

  inline static bool allowed_ = true;
  std::string what_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool shown_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_;
};

}  // namespace torchtap::tools
