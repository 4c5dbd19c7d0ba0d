#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <sstream>

#include "commands.hpp"

namespace torchtap::tools {
namespace {

constexpr char kExamples[] = R"(
Prints a script that completes subcommands, options, values of options with fixed choices, and files.

Examples:
  source <(torchtap completion bash)
  torchtap completion bash > ~/.local/share/bash-completion/completions/torchtap

Exit status: 0, or 2 for another shell.)";

/// The function itself. What it knows of the command is put in front of it: `_torchtap_commands`, and by
/// command `_torchtap_options`, `_torchtap_values` (options that take one) and `_torchtap_choices`.
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

/// The members of "{a,b}" in what help says of an option: "TEXT:{a,b}".
std::vector<std::string> choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const auto from = type.find('{');
  const auto to = type.find('}', from == std::string::npos ? 0 : from);
  std::vector<std::string> members;
  if (from == std::string::npos || to == std::string::npos) return members;
  std::istringstream stream(type.substr(from + 1, to - from - 1));
  for (std::string member; std::getline(stream, member, ',');) members.push_back(member);
  return members;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Both are this program's own words, without anything that a shell would take for more.
void assign(const std::string& table, const std::string& key, const std::vector<std::string>& words) {
  if (!words.empty()) std::cout << table << "[\"" << key << "\"]=\"" << joined(words) << "\"\n";
}

void describe(const CLI::App& command, const std::string& name) {
  std::vector<std::string> all, valued;
  for (const CLI::Option* option : command.get_options()) {
    std::vector<std::string> names;
    for (const auto& text : option->get_snames()) names.push_back("-" + text);
    for (const auto& text : option->get_lnames()) names.push_back("--" + text);
    all.insert(all.end(), names.begin(), names.end());
    if (option->get_items_expected_max() > 0) {
      valued.insert(valued.end(), names.begin(), names.end());
    }
    for (const auto& text : names) assign("_torchtap_choices", name + " " + text, choices(*option));
    if (names.empty()) assign("_torchtap_choices", name, choices(*option));
  }
  assign("_torchtap_options", name, all);
  assign("_torchtap_values", name, valued);
}

void print_bash(const CLI::App& app) {
  std::cout << "# Completion of torchtap for bash, made by: torchtap completion bash\n"
            << "declare -gA _torchtap_options _torchtap_values _torchtap_choices\n";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  std::cout << "_torchtap_commands=\"" << joined(names) << "\"\n";
  describe(app, "main");
  for (const CLI::App* command : app.get_subcommands({})) describe(*command, command->get_name());
  std::cout << kFunction;
}

}  // namespace

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes this command in a shell");
  command->footer(kExamples);
  command->add_option("shell", *shell, "The shell")->required()->check(CLI::IsMember({"bash"}));
  command->callback([&app, shell] { print_bash(app); });
}

}  // namespace torchtap::tools
