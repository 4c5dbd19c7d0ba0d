#include <ostream>

#include "completion.hpp"

namespace torchtap::tools::completion {
namespace {

/// In single quotes, which have two escapes in fish.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

void describe_fish(std::ostream& stream, const Command& command) {
  const std::string when =
      command.name.empty() ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + command.name;
  for (const auto& option : command.options) {
    stream << "complete -c torchtap -n " << quoted(when);
    for (const auto& name : option.names) {
      stream << (name.compare(0, 2, "--") == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1));
    }
    if (option.names.empty()) {
      stream << (option.choices.empty() ? " -F" : " -f -a " + quoted(joined(option.choices))) << '\n';
      continue;
    }
    if (option.takes_value) {
      stream << (option.choices.empty() ? " -r -F" : " -x -a " + quoted(joined(option.choices)));
    }
    stream << " -d " << quoted(option.help) << '\n';
  }
  if (command.runs_program) {
    stream << "complete -c torchtap -n " << quoted(when + "; and contains -- -- (commandline -opc)")
           << " -x -a "
           << quoted("(__fish_complete_subcommand --fcs-skip=(contains -i -- -- (commandline -opc)))")
           << '\n';
  }
}

}  // namespace

void print_fish(std::ostream& stream, const Commands& commands) {
  stream << "# Completion of torchtap for fish, made by: torchtap completion fish\n"
         << "complete -c torchtap -f\n";
  for (const auto& command : commands) {
    if (command.name.empty()) continue;
    stream << "complete -c torchtap -n __fish_use_subcommand -a " << command.name << " -d "
           << quoted(command.help) << '\n';
  }
  for (const auto& command : commands) describe_fish(stream, command);
}

}  // namespace torchtap::tools::completion
