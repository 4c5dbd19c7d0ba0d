#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// Answers of `torchtap` that need no LibTorch, which takes half a second to load: --help, --version,
/// completion.
///
/// The build asks torchtap's program for all answers, and compiles them into the small command that starts
/// it.
namespace torchtap::tools {

struct Answer {
  std::string words;  ///< of the command line, such as "show --help"
  std::string text;   ///< of --help not yet laid out (help_layout.hpp)
};

/// The answers that were compiled into the command.
const std::vector<Answer>& answers();
/// The answers of the program whose command line is `app`.
std::vector<Answer> answers_of(const CLI::App& app);
/// Writes C++ that defines `answers()` as `all`. Throws `c10::Error` if the file cannot be written.
void write_answers(const std::string& file, const std::vector<Answer>& all);
/// Writes the answers of --help as a page for `man`. Throws `c10::Error` if the file cannot be written.
void write_man_page(const std::string& file, const std::vector<Answer>& all);

}  // namespace torchtap::tools
