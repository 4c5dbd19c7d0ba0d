// Writes the answers of --help as a page for `man`.
#include <c10/util/Exception.h>

#include <fstream>
#include <sstream>

#include <torchtap/version.hpp>

#include "answers.hpp"
#include "terminal/help_layout.hpp"

namespace torchtap::tools {
namespace {

constexpr std::size_t kColumns = 72;  // of examples and tables, which man indents

/// As man takes it: its own signs are escaped, and quotes and dashes stay those that a shell wants.
std::string escaped(const std::string& text) {
  std::string result = text.find_first_of(".'") == 0 ? "\\&" : "";
  for (const char c : text) {
    switch (c) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '\'':
        result += "\\(aq";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '~':
        result += "\\(ti";
        break;
      default:
        result += c;
    }
  }
  return result;
}

void write_options(std::ostream& out, const std::string& help) {
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const auto second = line.find(kHelpEntry, 1);
    if (line.empty()) continue;
    if (line[0] == kHelpEntry) {
      out << ".TP\n\\fB" << escaped(line.substr(1, second - 1)) << "\\fR\n"
          << escaped(line.substr(second + 1)) << '\n';
    } else {
      out << ".PP\n" << escaped(line) << '\n';
    }
  }
}

/// Examples and tables as they are, the rest as paragraphs.
void write_footer(std::ostream& out, const std::string& footer) {
  std::istringstream lines(laid_out(kHelpFooter + footer, kColumns));
  bool as_it_is = false;
  for (std::string line; std::getline(lines, line);) {
    const bool indented = !line.empty() && line[0] == ' ';
    if (indented != as_it_is) out << (indented ? ".PP\n.nf\n" : ".fi\n");
    as_it_is = indented;
    out << (line.empty() ? ".PP" : escaped(line)) << '\n';
  }
  if (as_it_is) out << ".fi\n";
}

}  // namespace

void write_man_page(const std::string& file, const std::vector<Answer>& all) {
  std::ofstream out(file);
  out << ".TH TORCHTAP 1 \"\" \"torchtap " TORCHTAP_VERSION
         "\"\n.SH NAME\ntorchtap \\- see inside LibTorch models\n";
  for (const auto& [words, text] : all) {
    const auto option = words.find("--help");
    if (option == std::string::npos) continue;
    out << ".SH " << (option == 0 ? "COMMANDS" : "TORCHTAP " + words.substr(0, option - 1)) << '\n';
    const auto footer = text.find(kHelpFooter);
    write_options(out, text.substr(0, footer));
    if (footer != std::string::npos) write_footer(out, text.substr(footer + 1));
  }
  TORCH_CHECK(out.flush(), "\"", file, "\" cannot be written.");
}

}  // namespace torchtap::tools
