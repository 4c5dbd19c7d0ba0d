#include "help.hpp"

#include <CLI/CLI.hpp>

#include <cstring>
#include <iostream>
#include <memory>
#include <utility>

#include "help_layout.hpp"
#include "progress.hpp"

namespace torchtap::tools {
namespace {

Notes* the_notes = nullptr;

class Formatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return laid_out(make(app, std::move(name), mode), help_width());
  }
  /// Before it is laid out.
  std::string make(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
    // Does as CLI::Formatter::make_help, which since CLI11 2.5 breaks description and footer into lines
    // itself.
    const std::string text =
        introduction(app, std::move(name)) +
        titled(make_positionals(app) + make_groups(app, mode) + make_subcommands(app, mode)) + "\n";
    return without_double_blanks(text) + kHelpFooter + app->get_footer();
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    return entry(make_option_name(option, positional) + make_option_opts(option), make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(true), command->get_description());
  }
  /// "--explore[=PORT]" for a flag that may have a value.
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    const auto value = name.find('{');
    return value == std::string::npos ? name : name.substr(0, value) + "[=" + option->get_type_name() + "]";
  }
  /// "{npy,csv}=npy", "FILE ... REQUIRED". Leaves out which options exclude each other: the error says so
  /// when both are given.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string type = option->get_type_name();
    const auto colon = type.find(':');
    if (colon != std::string::npos) type = type.substr(colon + 1);  // what is checked, not how it is stored
    if (type.find("PATH") == 0) type = "PATH";
    std::string text = type.empty() ? "" : " " + type;
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required()) text += " REQUIRED";
    return text;
  }

 private:
  // Versions of CLI11 differ in their titles, and in how many blank lines they put between the parts.

  std::string introduction(const CLI::App* app, std::string name) const {
    std::string description = make_description(app), usage = make_usage(app, std::move(name));
    description.erase(description.find_last_not_of('\n') + 1);
    usage.erase(0, usage.find_first_not_of('\n'));
    return description + (usage.find("Usage:") == 0 ? "\n" : "\nUsage: ") + usage;
  }
  static std::string titled(std::string text) {
    const std::pair<const char*, const char*> titles[]{{"\nPOSITIONALS:\n", "\nPositionals:\n"},
                                                       {"\nOPTIONS:\n", "\nOptions:\n"}};
    for (const auto& [since_2_5, title] : titles) {
      const auto at = text.find(since_2_5);
      if (at != std::string::npos) text.replace(at, std::strlen(since_2_5), title);
    }
    return text;
  }
  static std::string without_double_blanks(std::string text) {
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    return text;
  }
  static std::string entry(const std::string& name, const std::string& description) {
    return kHelpEntry + name + kHelpEntry + description + "\n";
  }
};

}  // namespace

void set_help(CLI::App& app) {
  app.formatter(std::make_shared<Formatter>());
}

std::string help_before_layout(const CLI::App& command, const std::string& name) {
  return Formatter().make(&command, name, CLI::AppFormatMode::Normal);
}

Notes::Notes() : to_(std::cerr.rdbuf()) {
  the_notes = this;
}

Notes::~Notes() {
  the_notes = nullptr;
  std::cerr.rdbuf(to_);
}

void Notes::end_process(int status) {
  if (the_notes != nullptr) the_notes->end(status);
}

void Notes::add_option(CLI::App& command) {
  command.add_flag_callback(
      "-q,--quiet", [this] { keep(); }, "No notes and no progress; results and errors are printed");
}

void Notes::keep() {
  Progress::show(false);
  std::cerr.rdbuf(kept_.rdbuf());
}

void Notes::end(int status) {
  std::cerr.rdbuf(to_);
  if (status != 0 && status != 1) std::cerr << kept_.str();
  kept_.str("");
}

}  // namespace torchtap::tools
