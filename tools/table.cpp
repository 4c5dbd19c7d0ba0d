#include "table.hpp"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <ostream>
#include <sstream>

namespace torchtap::tools {
namespace {

constexpr std::size_t kGap = 2;  // between columns

bool continues(char c) {
  return (c & 0xc0) == 0x80;
}

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

/// What has room of `text`, with dots where it was cut.
std::string cut(const std::string& text, std::size_t to, bool keeps_end) {
  if (width_of(text) <= to) return text;
  const std::string dots = utf8_locale() ? "…" : "..";
  const std::size_t kept = to - std::min(to, width_of(dots));
  const std::size_t skipped = keeps_end ? width_of(text) - kept : kept;
  std::size_t at = 0;
  for (std::size_t characters = 0; at < text.size(); ++at) {
    if (!continues(text[at]) && characters++ == skipped) break;
  }
  return keeps_end ? dots + text.substr(at) : text.substr(0, at) + dots;
}

struct Room {
  std::vector<std::size_t> widths;  // of each column
  std::vector<bool> shown;

  std::size_t total() const {
    std::size_t sum = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (!shown[i]) continue;
      sum += widths[i];
      ++count;
    }
    return sum + (count == 0 ? 0 : (count - 1) * kGap);
  }
};

Room room_for(const std::vector<FittedColumn>& columns, const std::vector<std::vector<std::string>>& rows) {
  Room room;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::size_t widest = width_of(columns[i].title);
    for (const auto& row : rows) widest = std::max(widest, width_of(row[i]));
    room.widths.push_back(widest);
    room.shown.push_back(true);
  }
  return room;
}

}  // namespace

std::size_t line_width() {
  if (const char* text = std::getenv("COLUMNS")) {
    const long columns = std::strtol(text, nullptr, 10);
    if (columns > 0) return static_cast<std::size_t>(columns);
  }
  // Behind a pipe (head, less) somebody looks on, too, if messages go to a terminal.
  struct stat out {};
  const bool pipe = ::fstat(STDOUT_FILENO, &out) == 0 && S_ISFIFO(out.st_mode);
  const int terminal = pipe ? STDERR_FILENO : STDOUT_FILENO;
  ::winsize size{};
  if (::isatty(terminal) == 1 && ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return SIZE_MAX;
}

std::size_t full_width(const std::vector<FittedColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
  return room_for(columns, rows).total();
}

std::set<std::string> print_fitted(std::ostream& stream, const std::vector<FittedColumn>& columns,
                                   const std::vector<std::vector<std::string>>& rows, std::size_t width) {
  Room room = room_for(columns, rows);
  const auto same_in_all = [&](std::size_t i) {
    return rows.size() > 1 &&
           std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row[i] == rows.front()[i]; });
  };
  const auto drop = [&](auto may_go) {
    std::size_t least = columns.size();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!room.shown[i] || columns[i].importance >= FittedColumn::kAlways || !may_go(i)) continue;
      if (least == columns.size() || columns[i].importance < columns[least].importance) least = i;
    }
    if (least != columns.size()) room.shown[least] = false;
    return least;
  };
  const auto spare = [&](std::size_t i) -> std::size_t {
    if (columns[i].least == 0) return 0;
    return room.widths[i] - std::min(room.widths[i], std::max(columns[i].least, width_of(columns[i].title)));
  };
  const auto to_spare = [&] {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) sum += room.shown[i] ? spare(i) : 0;
    return sum;
  };

  std::string same;
  std::string left_out;
  while (room.total() > width) {
    const std::size_t i = drop(same_in_all);
    if (i == columns.size()) break;
    same += (same.empty() ? "" : ", ") + columns[i].title + " " + rows.front()[i];
  }
  while (room.total() > width && room.total() - width > to_spare()) {
    const std::size_t i = drop([](std::size_t) { return true; });
    if (i == columns.size()) break;
    left_out = columns[i].title + (left_out.empty() ? "" : ", ") + left_out;
  }
  std::vector<std::size_t> order(columns.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return columns[a].importance < columns[b].importance;
  });
  for (const std::size_t i : order) {
    if (room.shown[i] && room.total() > width) room.widths[i] -= std::min(spare(i), room.total() - width);
  }

  std::vector<Table::Column> titles;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (room.shown[i]) titles.push_back({columns[i].title, columns[i].align});
  }
  Table table(std::move(titles));
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (room.shown[i])
        cells.push_back(columns[i].least > 0 ? cut(row[i], room.widths[i], columns[i].keeps_end) : row[i]);
    }
    table.add(std::move(cells));
  }
  table.print(stream);
  if (!same.empty() || !left_out.empty()) stream << '\n';
  if (!same.empty()) print_wrapped(stream, "in all rows: " + same, width);
  if (!left_out.empty()) print_wrapped(stream, "no room for: " + left_out, width);
  std::set<std::string> shown;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (room.shown[i]) shown.insert(columns[i].title);
  }
  return shown;
}

void print_wrapped(std::ostream& stream, const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && width_of(line) + 1 + width_of(word) > width) {
      stream << line << '\n';
      line = "  " + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  stream << line << '\n';
}

std::string sparkline(const std::vector<double>& counts, std::size_t width) {
  static const std::array<const char*, 9> blocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const std::array<const char*, 9> ascii{" ", ".", ":", "-", "=", "+", "*", "#", "@"};
  const std::size_t size = std::min(width, counts.size());
  std::vector<double> sums(size);
  // A bin that lies across two characters counts in part for each of them.
  const double step = static_cast<double>(counts.size()) / static_cast<double>(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double from = static_cast<double>(i) * step;
    const double to = from + step;
    for (auto bin = static_cast<std::size_t>(from); bin < counts.size() && static_cast<double>(bin) < to;
         ++bin) {
      const double part =
          std::min(to, static_cast<double>(bin + 1)) - std::max(from, static_cast<double>(bin));
      sums[i] += counts[bin] * std::max(part, 0.0);
    }
  }
  const double most = sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
  std::string text;
  for (const double sum : sums) {
    std::size_t level = 0;
    if (sum > 0) level = std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(sum / most * 8)));
    text += utf8_locale() ? blocks[level] : ascii[level];
  }
  return text;
}

std::string to_text(double value, int digits) {
  if (std::isnan(value)) return "nan";  // not "-nan"
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value == 0 ? 0.0 : value);  // not "-0"
  return text;
}

}  // namespace torchtap::tools
