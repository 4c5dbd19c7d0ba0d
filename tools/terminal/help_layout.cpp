#include "help_layout.hpp"

#include <algorithm>
#include <sstream>

#include <torchtap/views/text/characters.hpp>

#include "terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr std::size_t kWidest = 100;
constexpr std::size_t kNarrowest = 40;
constexpr std::size_t kColumn = 28;  // of descriptions

/// `text` in lines of at most `most` columns, broken between words; the lines after the first begin with
/// `indent` blanks.
std::string wrapped(const std::string& text, std::size_t most, std::size_t indent) {
  std::istringstream words(text);
  std::string lines, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && views::text::width_of(line) + 1 + views::text::width_of(word) > most - indent) {
      lines += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return lines + line;
}

std::string entry(const std::string& name, const std::string& description, std::size_t columns) {
  std::string left = wrapped(name, columns - 2, 4);
  const std::string right = wrapped(description, columns, kColumn);
  if (right.empty()) return "  " + left + "\n";
  const bool beside = left.find('\n') == std::string::npos && views::text::width_of(left) + 4 <= kColumn;
  left +=
      beside ? std::string(kColumn - 2 - views::text::width_of(left), ' ') : "\n" + std::string(kColumn, ' ');
  return "  " + left + right + "\n";
}

/// "  name    what it means", wrapped under its last column.
std::string row(const std::string& line, std::size_t columns) {
  if (views::text::width_of(line) <= columns) return line;
  const auto begin = line.find_first_not_of(' ');
  const auto gap = line.find("  ", begin);
  const auto column = gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
  return line.substr(0, column) + wrapped(line.substr(column), columns, column);
}

std::string footer(const std::string& written, std::size_t columns) {
  std::istringstream lines(written);
  std::string text, paragraph;
  bool examples = false;
  const auto end = [&] {
    if (!paragraph.empty()) text += wrapped(paragraph, columns, 0) + "\n";
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    const bool prose = !line.empty() && line[0] != ' ';
    if (!prose) end();
    if (prose) {
      examples = line == "Examples:";
      paragraph += line + "\n";
      if (line.back() == ':') end();
    } else {
      text += (examples ? line : row(line, columns)) + "\n";
    }
  }
  end();
  return text;
}

}  // namespace

std::size_t help_width() {
  return std::max(kNarrowest, std::min(line_width(), kWidest));
}

std::string laid_out(const std::string& help, std::size_t columns) {
  const auto end = help.find(kHelpFooter);
  std::istringstream lines(help.substr(0, end));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const auto second = line.find(kHelpEntry, 1);
    text += line.empty() || line[0] != kHelpEntry
                ? line + "\n"
                : entry(line.substr(1, second - 1), line.substr(second + 1), columns);
  }
  return end == std::string::npos ? text : text + footer(help.substr(end + 1), columns);
}

}  // namespace torchtap::tools
