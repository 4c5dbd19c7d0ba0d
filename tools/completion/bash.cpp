#include <ostream>

#include "completion.hpp"

namespace torchtap::tools::completion {
namespace {

/// The completion function. The generated tables precede it: `_torchtap_commands` and, per command,
/// `_torchtap_options`, `_torchtap_values` (options that take one) and `_torchtap_choices`.
constexpr char kFunction[] = R"(
_torchtap() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= word
  COMPREPLY=()
  # "--to=n" comes as three words.
  if [[ $current == "=" ]]; then current=; elif [[ $previous == "=" ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ -n $word && " $_torchtap_commands " == *" $word "* ]]; then command=$word; break; fi
  done
  if [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "$_torchtap_commands ${_torchtap_options[main]}" -- "$current"))
    return
  fi
  # What follows -- is another program's.
  if [[ " ${COMP_WORDS[*]:0:COMP_CWORD} " == *" -- "* ]]; then
    COMPREPLY=($(compgen -c -f -- "$current"))
    return
  fi
  local choices=${_torchtap_choices[$command $previous]}
  if [[ -z $choices && $previous != -* ]]; then choices=${_torchtap_choices[$command]}; fi
  if [[ -n $choices && $current != -* ]]; then
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
  elif [[ $current == -* && " ${_torchtap_values[$command]} " != *" $previous "* ]]; then
    COMPREPLY=($(compgen -W "${_torchtap_options[$command]}" -- "$current"))
  else
    local IFS=$'\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -F _torchtap torchtap
)";

/// `key` and `words` are this program's own words, without characters that a shell would interpret.
void assign(std::ostream& stream, const std::string& table, const std::string& key,
            const std::vector<std::string>& words) {
  if (!words.empty()) stream << table << "[\"" << key << "\"]=\"" << joined(words) << "\"\n";
}

void describe_bash(std::ostream& stream, const Command& command) {
  const std::string name = command.name.empty() ? "main" : command.name;
  std::vector<std::string> all, valued;
  for (const auto& option : command.options) {
    all.insert(all.end(), option.names.begin(), option.names.end());
    if (option.takes_value) valued.insert(valued.end(), option.names.begin(), option.names.end());
    for (const auto& text : option.names) {
      assign(stream, "_torchtap_choices", name + " " + text, option.choices);
    }
    if (option.names.empty()) assign(stream, "_torchtap_choices", name, option.choices);
  }
  assign(stream, "_torchtap_options", name, all);
  assign(stream, "_torchtap_values", name, valued);
}

}  // namespace

void print_bash(std::ostream& stream, const Commands& commands) {
  stream << "# Completion of torchtap for bash, made by: torchtap completion bash\n"
         << "declare -gA _torchtap_options _torchtap_values _torchtap_choices\n";
  std::vector<std::string> names;
  for (const auto& command : commands) {
    if (!command.name.empty()) names.push_back(command.name);
  }
  stream << "_torchtap_commands=\"" << joined(names) << "\"\n";
  for (const auto& command : commands) describe_bash(stream, command);
  stream << kFunction;
}

}  // namespace torchtap::tools::completion
