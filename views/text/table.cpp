#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <sstream>
#include <utility>

#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/table.hpp>

namespace torchtap::views::text {
namespace {

std::string padded(const std::string& text, std::size_t to, Table::Align align) {
  const std::string space(to - std::min(to, width_of(text)), ' ');
  return align == Table::Align::left ? text + space : space + text;
}

}  // namespace

/// The layout of a table that fits.
struct Table::Fit {
  std::vector<std::size_t> widths;  // of each column
  std::vector<bool> shown;
  std::vector<std::size_t> folded, left_out;
  std::size_t gap;

  std::size_t total() const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (shown[i]) sum += widths[i] + gap;
    }
    return sum - std::min(sum, gap);
  }
};

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (auto& column : columns_) column.title = printable(column.title);
}

void Table::add(std::vector<std::string> cells) {
  for (auto& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

Table& Table::folds_constant_columns(bool folds) {
  folds_ = folds;
  return *this;
}

Table& Table::ascii(bool ascii) {
  ascii_ = ascii;
  return *this;
}

Table& Table::gap(std::size_t blanks) {
  gap_ = blanks;
  return *this;
}

Table& Table::paints(Paint paint) {
  paint_ = std::move(paint);
  return *this;
}

std::size_t Table::width() const {
  return fit(SIZE_MAX).total();
}

bool Table::is_constant(std::size_t column) const {
  return rows_.size() > 1 && std::all_of(rows_.begin(), rows_.end(), [&](const auto& row) {
           return row[column] == rows_.front()[column];
         });
}

Table::Fit Table::fit(std::size_t width) const {
  Fit fit;
  fit.gap = gap_;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t widest = width_of(columns_[i].title);
    for (const auto& row : rows_) widest = std::max(widest, width_of(row[i]));
    fit.widths.push_back(widest);
    fit.shown.push_back(true);
  }
  std::vector<std::size_t> order(columns_.size());  // least important first
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return columns_[a].importance < columns_[b].importance;
  });
  const auto may_go = [&](std::size_t i) { return fit.shown[i] && columns_[i].importance < kAlways; };
  const auto spare = [&](std::size_t i) -> std::size_t {
    if (!fit.shown[i] || columns_[i].least == 0) return 0;
    return fit.widths[i] - std::min(fit.widths[i], std::max(columns_[i].least, width_of(columns_[i].title)));
  };
  const auto excess = [&] { return fit.total() - std::min(fit.total(), width); };

  for (const std::size_t i : order) {
    if (!folds_ || excess() == 0 || !may_go(i) || !is_constant(i)) continue;
    fit.shown[i] = false;
    fit.folded.push_back(i);
  }
  for (const std::size_t i : order) {
    std::size_t to_spare = 0;
    for (const std::size_t other : order) to_spare += spare(other);
    if (excess() <= to_spare || !may_go(i)) continue;
    fit.shown[i] = false;
    fit.left_out.push_back(i);
  }
  for (const std::size_t i : order) fit.widths[i] -= std::min(spare(i), excess());
  return fit;
}

std::set<std::string> Table::print(std::ostream& stream, std::size_t width) const {
  const Fit fit = this->fit(width);
  std::set<std::string> shown;
  const auto line = [&](std::ptrdiff_t row, const std::vector<std::string>& cells) {
    // Nothing is printed after the last cell that has text.
    std::size_t end = columns_.size();
    while (end > 0 && (!fit.shown[end - 1] || cells[end - 1].find_last_not_of(' ') == std::string::npos))
      --end;
    bool first = true;
    for (std::size_t i = 0; i < end; ++i) {
      if (!fit.shown[i]) continue;
      const auto& column = columns_[i];
      std::string text =
          padded(cut(cells[i], fit.widths[i], column.keeps_end, ascii_), fit.widths[i], column.align);
      if (i + 1 == end) text.erase(text.find_last_not_of(' ') + 1);
      stream << std::string(std::exchange(first, false) ? 0 : gap_, ' ')
             << (paint_ ? paint_(row, i, text) : text);
    }
    stream << '\n';
  };
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    if (fit.shown[i]) shown.insert(columns_[i].title);
  }
  line(-1, titles);
  for (std::size_t i = 0; i < rows_.size(); ++i) line(static_cast<std::ptrdiff_t>(i), rows_[i]);

  std::string folded, left_out;
  for (const std::size_t i : fit.folded) {
    folded += (folded.empty() ? "" : ", ") + columns_[i].title + " " + rows_.front()[i];
  }
  for (const std::size_t i : fit.left_out) {  // most important first
    left_out = columns_[i].title + (left_out.empty() ? "" : ", ") + left_out;
  }
  if (!folded.empty() || !left_out.empty()) stream << '\n';
  if (!folded.empty()) print_wrapped(stream, "in all rows: " + folded, width);
  if (!left_out.empty()) print_wrapped(stream, "no room for: " + left_out, width);
  return shown;
}

void print_wrapped(std::ostream& stream, const std::string& text, std::size_t width) {
  std::istringstream words(printable(text));
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && width_of(line) + 1 + width_of(word) > width) {
      stream << line << '\n';
      line = "  " + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
    // A word that is longer than a line. Few columns have no room for the indent and a wide character.
    while (width >= 8 && width_of(line) > width) {
      const std::string head = head_of(line, width);
      stream << head << '\n';
      line = "  " + line.substr(head.size());
    }
  }
  stream << line << '\n';
}

}  // namespace torchtap::views::text
