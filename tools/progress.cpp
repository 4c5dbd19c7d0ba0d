#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr int kColumns = 30;

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

}  // namespace

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), shown_(is_terminal()) {}

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
  char rate[48];
  std::snprintf(rate, sizeof rate, "%.3g/s", seconds > 0 ? static_cast<double>(done_) / seconds : 0.0);
  std::string line = what_ + " ";
  if (total_ > 0) {
    const auto filled = static_cast<int>(std::min(done_, total_) * kColumns / total_);
    line += "[";
    for (int i = 0; i < kColumns; ++i) line += i < filled ? (utf8_locale() ? "█" : "#") : " ";
    line += "] " + std::to_string(done_) + "/" + std::to_string(total_) + " ";
  } else {
    line += std::to_string(done_) + " ";
  }
  std::cerr << '\r' << line << rate << "\x1b[K" << std::flush;
}

}  // namespace torchtap::tools
