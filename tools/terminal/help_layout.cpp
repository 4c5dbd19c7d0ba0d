#include "help_layout.hpp"

#include <algorithm>
#include <sstream>
#include <vector>

#include <torchtap/views/text/characters.hpp>

#include "terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr std::size_t kWidest = 80;
constexpr std::size_t kNarrowest = 40;
constexpr std::size_t kColumn = 28;  // of descriptions, at most

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

/// The column of the descriptions: behind the longest name that leaves room for them.
std::size_t column_of(const std::string& help) {
  std::size_t column = 0;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != kHelpEntry) continue;
    const std::size_t width = views::text::width_of(line.substr(1, line.find(kHelpEntry, 1) - 1)) + 4;
    if (width <= kColumn) column = std::max(column, width);
  }
  return column == 0 ? kColumn : column;
}

std::string entry(const std::string& name, const std::string& description, std::size_t column,
                  std::size_t columns) {
  std::string left = wrapped(name, columns - 2, 4);
  const std::string right = wrapped(description, columns, column);
  if (right.empty()) return "  " + left + "\n";
  const bool beside = left.find('\n') == std::string::npos && views::text::width_of(left) + 4 <= column;
  left +=
      beside ? std::string(column - 2 - views::text::width_of(left), ' ') : "\n" + std::string(column, ' ');
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

/// The words of a shell's command; what stands in quotes is one word, and so is an option with its value.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words(1);
  char quote = 0;
  for (const char c : command) {
    if (c == ' ' && quote == 0) {
      if (!words.back().empty()) words.emplace_back();
      continue;
    }
    if (quote == 0 ? c == '\'' || c == '"' : c == quote) quote = quote == 0 ? c : '\0';
    words.back() += c;
  }
  if (words.back().empty()) words.pop_back();
  for (std::size_t i = 1; i < words.size();) {
    const bool value = words[i - 1][0] == '-' && words[i - 1].find(' ') == std::string::npos &&
                       words[i - 1] != "--" && words[i][0] != '-';
    if (value) {
      words[i - 1] += " " + words[i];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return words;
}

/// "  torchtap show maps/   # a comment": broken in front of words, with a backslash as a shell wants it,
/// where it is too long; the comment stands above it then.
std::string example(const std::string& line, std::size_t columns) {
  if (views::text::width_of(line) <= columns) return line + "\n";
  const auto comment = line.find(" # ");
  std::string text, broken = " ";
  if (comment != std::string::npos) text = "  " + wrapped(line.substr(comment), columns, 2) + "\n";
  for (const std::string& word : words_of(line.substr(0, comment))) {
    if (broken != " " && views::text::width_of(broken) + 1 + views::text::width_of(word) + 2 > columns) {
      text += broken + " \\\n";
      broken = "     ";
    }
    broken += " " + word;
  }
  return text + broken + "\n";
}

std::string footer(const std::string& written, std::size_t columns) {
  std::istringstream lines(written);
  std::string text, paragraph, command;
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
    } else if (examples && !line.empty() && line.back() == '\\') {
      command += line.substr(0, line.find_last_not_of("\\ ") + 1);  // goes on in the next line
    } else if (examples) {
      text +=
          example(command.empty() ? line : command + " " + line.substr(line.find_first_not_of(' ')), columns);
      command.clear();
    } else {
      text += row(line, columns) + "\n";
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
  const std::size_t column = column_of(help.substr(0, end));
  std::istringstream lines(help.substr(0, end));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const auto second = line.find(kHelpEntry, 1);
    text += line.empty() || line[0] != kHelpEntry
                ? wrapped(line, columns, line.rfind("Usage:", 0) == 0 ? 7 : 0) + "\n"
                : entry(line.substr(1, second - 1), line.substr(second + 1), column, columns);
  }
  return end == std::string::npos ? text : text + footer(help.substr(end + 1), columns);
}

}  // namespace torchtap::tools
