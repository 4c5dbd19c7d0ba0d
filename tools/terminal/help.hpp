#pragma once

#include <CLI/App.hpp>

#include <sstream>
#include <streambuf>
#include <string>

/// The common part of all commands on the command line.
namespace torchtap::tools {

/// Makes --help as wide as the terminal, at most 80 columns. Call it before commands are added.
void set_help(CLI::App& app);
/// The text of --help of `command`, which is called `name`, for `laid_out` of help_layout.hpp.
std::string help_before_layout(const CLI::App& command, const std::string& name);

/// Keeps notes that go to stderr, so that --quiet can leave them out: they are printed only if the command
/// fails, because then they may say why.
class Notes {
 public:
  Notes();
  ~Notes();
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  /// Adds --quiet to a command.
  void add_option(CLI::App& command);
  /// Prints the kept text if the exit status is neither 0 nor 1.
  void end(int status);
  /// Ends the output of a command that ends its process itself.
  static void end_process(int status);

 private:
  void keep();

  std::ostringstream kept_;
  std::streambuf* to_;
};

}  // namespace torchtap::tools
