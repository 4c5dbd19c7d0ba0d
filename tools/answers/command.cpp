// The command `torchtap`: gives the answers that need no LibTorch, and becomes torchtap's program for
// everything else.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "answers.hpp"
#include "terminal/help_layout.hpp"

namespace {

using namespace torchtap::tools;

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

/// The words of the answer that a command line may ask for; whether there is one is another question.
///
/// --help counts wherever it stands before "--", after which another program's words come. Unlike in the
/// program, an error beside it does not prevent the answer.
std::string words_of(const std::vector<std::string>& words) {
  if (words.empty()) return "--help";
  const auto& first = words.front();
  if (first == "help") return words.size() == 1 ? "--help" : words[1] + " --help";
  if (words.size() == 1 && asks_for_help(first)) return "--help";
  if (words.size() == 1) return first == "-V" || first == "--version" ? "--version" : "";
  if (std::any_of(words.begin(), std::find(words.begin(), words.end(), "--"), asks_for_help)) {
    return first + " --help";
  }
  return words.size() == 2 ? first + " " + words.back() : "";
}

int print(const Answer& answer) {
  const bool help = answer.words.find("--help") != std::string::npos;
  const std::string text = help ? laid_out(answer.text, help_width()) : answer.text;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return 0;
  std::fprintf(stderr, "torchtap: cannot write to stdout: %s\n", std::strerror(errno));
  return 2;
}

/// Returns only if it fails.
int become_program(char** argv) {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto program = (here / TORCHTAP_PROGRAM_FROM_COMMAND).lexically_normal();
  ::execv(program.c_str(), argv);
  std::fprintf(stderr, "torchtap: cannot run %s, which is installed with this command: %s\n", program.c_str(),
               std::strerror(errno));
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string asked = words_of(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  for (const auto& answer : answers()) {
    if (answer.words == asked) return print(answer);
  }
  return become_program(argv);
}
