// Puts torchtap in front of a program.
#include "compared_program.hpp"

#include <c10/util/Exception.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <regex>

#include "installed.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;

std::string quoted(const std::string& word) {
  return "'" + std::regex_replace(word, std::regex("'"), "'\\''") + "'";
}

/// So that Python finds the package, and the package the library.
void prepare_python() {
  const fs::path folder = find_python();
  if (folder.empty()) return;
  const char* others = std::getenv("PYTHONPATH");
  const std::string path = folder.string() + (others != nullptr ? std::string(":") + others : "");
  ::setenv("PYTHONPATH", path.c_str(), 1);
  ::setenv("TORCHTAP_COMPARE_LIBRARY", find_library(TORCHTAP_COMPARE_LIBRARY).c_str(), 0);
}

}  // namespace

ComparedProgram::ComparedProgram(std::string line) : line_(std::move(line)) {
  // Assignments, the interpreter, and its options without arguments.
  static const std::regex python(
      R"(^\s*(?:[A-Za-z_]\w*=\S*\s+)*(?:\S*/)?python[0-9.]*(?=\s)(?:\s+-[bBdEiIOPqsSuvx]+(?=\s))*)");
  std::smatch found;
  TORCH_CHECK_VALUE(line_.find_first_not_of(" \t\n") != std::string::npos,
                    "--run: a command line is empty; it names the program to run.");
  if (std::regex_search(line_, found, python)) interpreter_end_ = static_cast<std::size_t>(found.length());
}

void ComparedProgram::run(const std::string& file, const std::vector<std::string>& options) const {
  std::string more;
  for (const std::string& option : options) more += " " + quoted(option);
  std::string command;
  if (python()) {
    prepare_python();
    command = line_.substr(0, interpreter_end_) + " -m torchtap_compare --to " + quoted(file) + more +
              line_.substr(interpreter_end_);
  } else {
    command = quoted(fs::read_symlink("/proc/self/exe").string()) + " preload --fingerprint " + quoted(file) +
              more + " -- sh -c " + quoted(line_);
  }
  std::cout.flush();
  const int status = std::system(("{ " + command + "\n} 1>&2").c_str());
  TORCH_CHECK(status == 0, "--run: \"", line_, "\" ",
              WIFSIGNALED(status) ? c10::str("was ended by signal ", WTERMSIG(status), " (",
                                             ::strsignal(WTERMSIG(status)), ")")
                                  : c10::str("ended with status ", WEXITSTATUS(status)),
              "; make it run to its end first.");
  TORCH_CHECK(fs::exists(file) && fs::file_size(file) != 0, "--run: \"", line_,
              "\" ended well and called no module that can be seen, so there is nothing to compare.");
}

}  // namespace torchtap::tools
