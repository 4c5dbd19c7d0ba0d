#include "terminal.hpp"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "words.hpp"

namespace torchtap::tools {
namespace {

/// Code points: what takes a column of the terminal, for the names that modules have.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t to, Table::Align align) {
  const std::string space(to - std::min(to, width(text)), ' ');
  return align == Table::Align::left ? text + space : space + text;
}

/// The first `to` columns, of which the last says that there were more.
std::string cut(const std::string& text, std::size_t to) {
  if (width(text) <= to) return text;
  std::size_t at = 0;
  for (std::size_t columns = 0; at < text.size(); ++at) {
    if ((text[at] & 0xc0) != 0x80 && columns++ + 1 == to) break;
  }
  return text.substr(0, at) + (utf8_locale() ? "…" : ">");
}

/// A bar of `length` columns, of which the last may be a part.
std::string bar(double length, bool utf8) {
  const auto whole = static_cast<std::size_t>(length);
  if (!utf8) return std::string(static_cast<std::size_t>(std::lround(length)), '#');
  static const std::array<const char*, 8> parts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  for (std::size_t i = 0; i < whole; ++i) text += "█";
  return text + parts[static_cast<std::size_t>((length - static_cast<double>(whole)) * 8)];
}

}  // namespace

bool utf8_locale() {
  static const bool utf8 = [] {
    std::setlocale(LC_CTYPE, "");  // not LC_ALL: numbers keep their decimal point
    return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
  }();
  return utf8;
}

std::string to_text(double value) {
  if (std::isnan(value)) return "nan";  // not "-nan"
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string bytes_to_text(std::int64_t bytes) {
  static const std::array<const char*, 6> units{"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < units.size(); ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string shape_to_text(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const auto size : shape) {
    text += (text.empty() ? "" : "x") + (size < 0 ? std::string("?") : std::to_string(size));
  }
  return text;
}

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

int terminal_columns(int descriptor) {
  struct winsize size {};
  return ::isatty(descriptor) == 1 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void Table::add(std::vector<std::string> cells) {
  for (auto& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::print(std::ostream& stream) const {
  const bool to_terminal = &stream == &std::cout;
  print(stream, to_terminal ? static_cast<std::size_t>(terminal_columns(STDOUT_FILENO)) : 0);
}

void Table::print(std::ostream& stream, std::size_t available) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t widest = width(columns_[i].title);
    for (const auto& row : rows_) widest = std::max(widest, width(row[i]));
    widths.push_back(widest);
  }
  std::vector<bool> shown(columns_.size(), true);
  const auto excess = [&](bool cut) {
    std::size_t whole = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const bool shrinks = cut && columns_[i].least != 0;
      if (shown[i])
        whole += (whole == 0 ? 0 : 2) + (shrinks ? std::min(widths[i], columns_[i].least) : widths[i]);
    }
    return available == 0 || whole <= available ? std::size_t{0} : whole - available;
  };
  while (excess(true) > 0) {
    std::size_t next = columns_.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const int most = next == columns_.size() ? 0 : columns_[next].leaves;
      if (shown[i] && columns_[i].leaves > most) next = i;
    }
    if (next == columns_.size()) break;
    shown[next] = false;
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!shown[i] || columns_[i].least == 0 || widths[i] <= columns_[i].least) continue;
    widths[i] -= std::min(excess(false), widths[i] - columns_[i].least);
  }
  const auto line = [&](const auto& cell) {
    std::string text;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (!shown[i]) continue;
      text += (text.empty() ? "" : "  ") + padded(cut(cell(i), widths[i]), widths[i], columns_[i].align);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    stream << text << '\n';
  };
  line([&](std::size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) {
    line([&](std::size_t i) { return row[i]; });
  }
}

void print_histogram(std::ostream& stream, const std::vector<double>& counts,
                     const std::vector<double>& edges) {
  constexpr double kWidest = 50;
  const double most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  Table table({{"from", Table::Align::right},
               {"to", Table::Align::right},
               {"count", Table::Align::right},
               {"", Table::Align::left}});
  for (std::size_t i = 0; i < counts.size(); ++i) {
    char count[32];
    std::snprintf(count, sizeof count, "%.0f", counts[i]);
    table.add({to_text(edges[i]), to_text(edges[i + 1]), count,
               bar(most > 0 ? counts[i] / most * kWidest : 0, utf8_locale())});
  }
  table.print(stream);
}

}  // namespace torchtap::tools
