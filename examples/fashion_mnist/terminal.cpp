#include "terminal.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>

Progress::Progress() : terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::show(std::int64_t index, std::int64_t count, const std::string& text) {
  const bool last = index + 1 == count;
  if (terminal_) {
    const double now =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    if (!last && now - shown_ < 0.1) return;
    shown_ = now;
    std::cout << "\r\033[K" << text << (last ? "\n" : "") << std::flush;
  } else {
    const std::int64_t tenth = 10 * (index + 1) / count;
    if (tenth == tenth_ || tenth == 0) return;
    tenth_ = tenth;
    std::cout << text << std::endl;
  }
}

void Table::print() const {
  const auto width = [](const std::string& text) {  // in characters of UTF-8
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  };
  std::vector<std::int64_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max<std::int64_t>(widths[i], width(row[i]));
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string& text = rows_[r][i];
      const std::string space(static_cast<std::size_t>(widths[i] - width(text)), ' ');
      const bool words = i < 2;
      std::cout << (i == 0 ? "" : "  ") << (words ? text + space : space + text);
    }
    std::cout << "\n";
    if (r > 0) continue;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      std::cout << (i == 0 ? "" : "  ");
      for (std::int64_t k = 0; k < widths[i]; ++k) std::cout << "─";
    }
    std::cout << "\n";
  }
}

std::string short_number(double value) {
  if (value == 0) return "0";
  char text[32];
  std::snprintf(text, sizeof text, "%#.3g", value);
  std::string result = text;
  if (result.back() == '.') result.pop_back();
  return result;
}
