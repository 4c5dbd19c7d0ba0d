#pragma once

/// Other programs that this one runs: Graphviz, ffmpeg. A crash and the memory that they take stay outside.

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::program {

/// A nameless file for a program's input or messages: unlike a pipe it never makes one side wait for the
/// other. Errors are `c10::Error` that begins with `where`.
class TORCHTAP_API Scratch {
 public:
  explicit Scratch(std::string where);

  int descriptor() const;
  /// Writes the whole text; a program that is given the file reads from its beginning.
  void put(const std::string& text);
  /// Everything that is in the file.
  std::string text() const;
  /// The text up to the first line break or `most` bytes.
  std::string first_line(std::size_t most = 500) const;

 private:
  std::string where_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// A program that runs; it is killed with this object.
class TORCHTAP_API Program {
 public:
  enum class CtrlC { ends_it, is_ours };

  /// Starts `command[0]`, which is looked up in PATH, with three descriptors as its standard input, output
  /// and error. Throws nothing: `error()` is empty if it runs.
  Program(std::vector<std::string> command, int in, int out, int messages, CtrlC ctrl_c = CtrlC::ends_it);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// 0 if the program runs, else the number of the system's error.
  int error() const { return error_; }
  /// Waits until the program has ended, for at most `seconds`; returns true if it has.
  bool wait(double seconds);
  /// The status that `waitpid` gave for the program that ended. 0 where this process ignores SIGCHLD or waits
  /// for all of its children: then there is none.
  int status() const { return status_; }
  /// "failed with exit status 1", "was ended by signal 9".
  std::string ending() const;

 private:
  pid_t id_ = -1;
  int error_ = 0;
  int status_ = 0;
};

}  // namespace torchtap::views::program
