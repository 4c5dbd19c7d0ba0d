#pragma once

#include <string>
#include <vector>

namespace torchtap::tools {

/// A program that `torchtap compare --run` runs, by a line for the shell.
class ComparedProgram {
 public:
  explicit ComparedProgram(std::string line);

  const std::string& line() const noexcept { return line_; }
  /// Whether it is a script for Python's interpreter, whose modules Python's hooks see. Others run under
  /// `torchtap preload`.
  bool python() const noexcept { return interpreter_end_ != 0; }
  /// Runs it, so that it writes fingerprints to `file`, with further options of `torchtap preload` or of
  /// `python3 -m torchtap_compare`. Its output goes to this command's stderr. Throws `c10::Error` if it fails
  /// or writes nothing.
  void run(const std::string& file, const std::vector<std::string>& options) const;

 private:
  const std::string line_;
  // The end of the options of Python's interpreter; 0 for a program that is not a Python script.
  std::size_t interpreter_end_ = 0;
};

}  // namespace torchtap::tools
