#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr int kColumns = 80;  // if the terminal does not report its size
constexpr std::size_t kLongest = 30;
constexpr std::size_t kShortest = 5;  // shorter bars are of no use

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

}  // namespace

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), shown_(allowed_ && is_terminal()) {}

Progress::~Progress() {
  if (shown_) std::cerr << "\r\x1b[K" << std::flush;
}

void Progress::advance(std::int64_t steps) {
  done_ += steps;
  if (!shown_) return;
  const auto now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100) && done_ != total_) return;
  drawn_ = now;
  draw();
}

void Progress::draw() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double speed = seconds > 0 ? static_cast<double>(done_) / seconds : 0.0;
  char rate[80];
  std::snprintf(rate, sizeof rate, speed < 1000 ? "%.3g/s" : "%.0f/s", speed);
  if (seconds >= 1 && speed > 0 && total_ > done_) {
    std::snprintf(
        rate + std::strlen(rate), sizeof rate - std::strlen(rate), ", %s left",
        views::text::duration_text(static_cast<double>(total_ - done_) / speed, !utf8_locale()).c_str());
  }
  const std::string number = std::to_string(done_) + (total_ > 0 ? "/" + std::to_string(total_) : "");
  // One column is left free: some terminals wrap after the last one.
  const int columns = terminal_columns(STDERR_FILENO);
  const auto free = static_cast<std::size_t>(columns > 0 ? columns - 1 : kColumns);
  const std::size_t words = what_.size() + number.size() + std::strlen(rate) + 2;
  std::string line = number;
  if (words <= free) {
    line = what_ + " ";
    if (total_ > 0 && words + kShortest + 3 <= free) {
      const auto width = static_cast<std::int64_t>(std::min(kLongest, free - words - 3));
      const auto filled = static_cast<std::int64_t>(static_cast<double>(std::min(done_, total_)) /
                                                    static_cast<double>(total_) * static_cast<double>(width));
      line += "[";
      for (std::int64_t i = 0; i < width; ++i) line += i < filled ? (utf8_locale() ? "█" : "#") : " ";
      line += "] ";
    }
    line += number + " " + rate;
  }
  std::cerr << '\r' << line.substr(0, words <= free ? std::string::npos : free) << "\x1b[K" << std::flush;
}

}  // namespace torchtap::tools
