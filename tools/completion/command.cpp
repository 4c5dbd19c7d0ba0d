#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <sstream>

#include <torchtap/reductions/parse.hpp>

#include "commands.hpp"
#include "completion.hpp"

namespace torchtap::tools {
namespace {

constexpr char kExamples[] = R"(
Prints a script that completes subcommands, options, values of options with fixed choices, and files.

Examples:
  source <(torchtap completion bash)
  torchtap completion bash > ~/.local/share/bash-completion/completions/torchtap
  source <(torchtap completion zsh)
  torchtap completion zsh > ~/.zfunc/_torchtap          # a folder in $fpath, before compinit
  torchtap completion fish > ~/.config/fish/completions/torchtap.fish

Exit status: 0, or 2 for another shell.)";

/// The members of "{a,b}" in an option's help text "TEXT:{a,b}".
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

completion::Command describe(const CLI::App& app, const std::string& name) {
  completion::Command command{name, app.get_description(), {}, false};
  for (const CLI::Option* option : app.get_options()) {
    completion::Option described;
    for (const auto& text : option->get_snames()) described.names.push_back("-" + text);
    for (const auto& text : option->get_lnames()) described.names.push_back("--" + text);
    described.help = option->get_description();
    described.takes_value = option->get_items_expected_max() > 0;
    described.repeats = option->get_items_expected_max() > 1;
    described.choices = choices(*option);
    if (option->get_name() == "--reduce") {
      for (const auto& entry : reductions::catalogue())
        described.choices.push_back(entry.usage.substr(0, entry.usage.find_first_of("[:")));
    }
    command.options.push_back(std::move(described));
    if (option->get_positional() && option->get_name() == "program") command.runs_program = true;
  }
  return command;
}

completion::Commands describe_all(const CLI::App& app) {
  completion::Commands commands{describe(app, "")};
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back(describe(*command, command->get_name()));
  }
  return commands;
}

}  // namespace

std::string completion::joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

void completion::print(std::ostream& stream, const CLI::App& app, const std::string& shell) {
  const auto commands = describe_all(app);
  if (shell == "bash") print_bash(stream, commands);
  if (shell == "zsh") print_zsh(stream, commands);
  if (shell == "fish") print_fish(stream, commands);
}

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes this command in a shell");
  command->footer(kExamples);
  command->add_option("shell", *shell, "The shell")->required()->check(CLI::IsMember(completion::shells()));
  command->callback([&app, shell] { completion::print(std::cout, app, *shell); });
}

}  // namespace torchtap::tools
