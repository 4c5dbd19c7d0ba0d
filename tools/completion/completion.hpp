#pragma once

#include <CLI/App.hpp>

#include <iosfwd>
#include <string>
#include <vector>

/// Scripts that complete the command in a shell, generated from the command's own options.
namespace torchtap::tools::completion {

struct Option {
  std::vector<std::string> names;  ///< "--help", "-h"; none for a positional argument
  std::string help;                ///< one line
  bool takes_value = false;
  bool repeats = false;
  std::vector<std::string> choices;  ///< of its value; empty: a file
};

struct Command {
  std::string name;  ///< "" for the program itself
  std::string help;
  std::vector<Option> options;
  bool runs_program = false;  ///< the words after "--" belong to another program
};

/// The program itself comes first.
using Commands = std::vector<Command>;

/// The shells for which there are scripts.
inline std::vector<std::string> shells() {
  return {"bash", "zsh", "fish"};
}
/// The script that completes `app` in one of these shells.
void print(std::ostream& stream, const CLI::App& app, const std::string& shell);

void print_bash(std::ostream& stream, const Commands& commands);
void print_zsh(std::ostream& stream, const Commands& commands);
void print_fish(std::ostream& stream, const Commands& commands);

/// "a b c".
std::string joined(const std::vector<std::string>& words, const std::string& separator = " ");

}  // namespace torchtap::tools::completion
