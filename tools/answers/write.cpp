// Writes the answers that need no LibTorch.
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <fstream>
#include <sstream>

#include "answers.hpp"
#include "completion/completion.hpp"
#include "terminal/help.hpp"

namespace torchtap::tools {

std::vector<Answer> answers_of(const CLI::App& app) {
  std::vector<Answer> all{{"--help", help_before_layout(app, app.get_name())},
                          {"--version", app.version() + "\n"}};
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& name = command->get_name();
    all.push_back({name + " --help", help_before_layout(*command, app.get_name() + " " + name)});
  }
  for (const auto& shell : completion::shells()) {
    std::ostringstream script;
    completion::print(script, app, shell);
    all.push_back({"completion " + shell, script.str()});
  }
  return all;
}

void write_answers(const std::string& file, const std::vector<Answer>& all) {
  std::ofstream out(file);
  out << "// Written by the build.\n#include \"answers/answers.hpp\"\n\n"
         "const std::vector<torchtap::tools::Answer>& torchtap::tools::answers() {\n"
         "  static const std::vector<Answer> all{\n";
  const auto literal = [](const std::string& text) { return "R\"torchtap(" + text + ")torchtap\""; };
  for (const auto& answer : all)
    out << '{' << literal(answer.words) << ", " << literal(answer.text) << "},\n";
  out << "  };\n  return all;\n}\n";
  TORCH_CHECK(out.flush(), "\"", file, "\" cannot be written.");
}

}  // namespace torchtap::tools
