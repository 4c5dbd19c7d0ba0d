#include <ostream>

#include "completion.hpp"

namespace torchtap::tools::completion {
namespace {

/// In single quotes.
std::string quoted_for_zsh(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// Escapes separators in a specification of _arguments or _describe.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string action(const Option& option) {
  return option.choices.empty() ? "_files" : "(" + joined(option.choices) + ")";
}

void describe_zsh(std::ostream& stream, const Command& command) {
  stream << "    " << command.name << ")\n      _arguments -s -S";
  for (const auto& option : command.options) {
    if (option.names.empty() && command.runs_program) {
      stream << " \\\n        " << quoted_for_zsh("(-)1:program: _command_names -e") << " \\\n        "
             << quoted_for_zsh("*::arguments: _normal");
    } else if (option.names.empty()) {
      stream << " \\\n        "
             << quoted_for_zsh((option.repeats ? "*:argument:" : ":argument:") + action(option));
    }
    for (const auto& name : option.names) {
      // The names of one option exclude each other unless it may be repeated.
      const std::string exclusive = option.repeats ? "*" : "(" + joined(option.names) + ")";
      const bool assigns = option.takes_value && name.compare(0, 2, "--") == 0;
      stream << " \\\n        "
             << quoted_for_zsh(exclusive + name + (assigns ? "=" : "") + "[" + escaped(option.help) + "]" +
                               (option.takes_value ? ":value:" + action(option) : ""));
    }
  }
  stream << "\n      ;;\n";
}

}  // namespace

void print_zsh(std::ostream& stream, const Commands& commands) {
  stream << "#compdef torchtap\n"
         << "# Completion of torchtap for zsh, made by: torchtap completion zsh\n"
         << "_torchtap() {\n"
         << "  local curcontext=\"$curcontext\" state state_descr line\n"
         << "  typeset -A opt_args\n"
         << "  local -a subcommands\n"  // zsh itself keeps the available programs in "commands"
         << "  subcommands=(\n";
  for (const auto& command : commands) {
    if (!command.name.empty()) {
      stream << "    " << quoted_for_zsh(escaped(command.name) + ":" + escaped(command.help)) << '\n';
    }
  }
  stream << "  )\n"
         << "  _arguments -C";
  for (const auto& option : commands.front().options) {
    for (const auto& name : option.names) {
      stream << " \\\n    " << quoted_for_zsh("(- *)" + name + "[" + escaped(option.help) + "]");
    }
  }
  stream << " \\\n    ':command:->command' '*::argument:->argument' && return\n"
         << "  if [[ $state == command ]]; then\n"
         << "    _describe command subcommands\n"
         << "    return\n"
         << "  fi\n"
         << "  case $line[1] in\n";
  for (const auto& command : commands) {
    if (!command.name.empty()) describe_zsh(stream, command);
  }
  stream << "  esac\n"
         << "}\n"
         << "if [[ $funcstack[1] == _torchtap ]]; then\n"
         << "  _torchtap \"$@\"\n"
         << "else\n"
         << "  compdef _torchtap torchtap\n"
         << "fi\n";
}

}  // namespace torchtap::tools::completion
