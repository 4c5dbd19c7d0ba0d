#include "help.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <memory>
#include <sstream>

#include <torchtap/views/text/characters.hpp>

#include "progress.hpp"
#include "table.hpp"

namespace torchtap::tools {
namespace {

constexpr std::size_t kWidest = 100;
constexpr std::size_t kNarrowest = 40;
constexpr std::size_t kColumn = 28;  // of descriptions

Notes* the_notes = nullptr;

std::size_t width() {
  return std::max(kNarrowest, std::min(line_width(), kWidest));
}

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

class Formatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    return entry(make_option_name(option, positional) + make_option_opts(option), make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(true), command->get_description());
  }
  /// "--explore[=PORT]" for a flag that may have a value.
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    const auto value = name.find('{');
    return value == std::string::npos ? name : name.substr(0, value) + "[=" + option->get_type_name() + "]";
  }
  /// "{npy,csv}=npy", "FILE ... REQUIRED". What an option excludes is said when both are given.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string type = option->get_type_name();
    const auto colon = type.find(':');
    if (colon != std::string::npos) type = type.substr(colon + 1);  // what is checked, not how it is stored
    if (type.find("PATH") == 0) type = "PATH";
    std::string text = type.empty() ? "" : " " + type;
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required()) text += " REQUIRED";
    return text;
  }
  /// Lines that begin with a blank are examples, which stay as they are, and tables; others are paragraphs.
  std::string make_footer(const CLI::App* app) const override {
    std::istringstream lines(app->get_footer());
    std::string text, paragraph;
    bool examples = false;
    const auto end = [&] {
      if (!paragraph.empty()) text += wrapped(paragraph, width(), 0) + "\n";
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
        text += (examples ? line : row(line)) + "\n";
      }
    }
    end();
    return text;
  }

 private:
  /// "  name    what it means", wrapped under its last column.
  static std::string row(const std::string& line) {
    if (views::text::width_of(line) <= width()) return line;
    const auto begin = line.find_first_not_of(' ');
    const auto gap = line.find("  ", begin);
    const auto column = gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
    return line.substr(0, column) + wrapped(line.substr(column), width(), column);
  }
  static std::string entry(const std::string& name, const std::string& description) {
    std::string left = wrapped(name, width() - 2, 4);
    const std::string right = wrapped(description, width(), kColumn);
    if (right.empty()) return "  " + left + "\n";
    const bool beside = left.find('\n') == std::string::npos && views::text::width_of(left) + 4 <= kColumn;
    left += beside ? std::string(kColumn - 2 - views::text::width_of(left), ' ')
                   : "\n" + std::string(kColumn, ' ');
    return "  " + left + right + "\n";
  }
};

}  // namespace

void set_help(CLI::App& app) {
  app.formatter(std::make_shared<Formatter>());
}

Notes::Notes() : to_(std::cerr.rdbuf()) {
  the_notes = this;
}

Notes::~Notes() {
  the_notes = nullptr;
  std::cerr.rdbuf(to_);
}

void Notes::end_process(int status) {
  if (the_notes != nullptr) the_notes->end(status);
}

void Notes::add_option(CLI::App& command) {
  command.add_flag_callback(
      "-q,--quiet", [this] { keep(); }, "No notes and no progress, only errors");
}

void Notes::keep() {
  Progress::show(false);
  std::cerr.rdbuf(kept_.rdbuf());
}

void Notes::end(int status) {
  std::cerr.rdbuf(to_);
  if (status != 0 && status != 1) std::cerr << kept_.str();
  kept_.str("");
}

}  // namespace torchtap::tools
