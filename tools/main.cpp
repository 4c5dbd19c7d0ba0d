// Torchtap's program, which the command `torchtap` becomes (answers/command.cpp).
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <streambuf>

#include <torchtap/base/error.hpp>
#include <torchtap/version.hpp>

#include "answers/answers.hpp"
#include "commands.hpp"
#include "options/option_checks.hpp"
#include "preload/command.hpp"
#include "recover/command.hpp"
#include "stream/commands.hpp"
#include "terminal/help.hpp"
#include "terminal/message_text.hpp"

namespace {

using namespace torchtap;

/// If the shell closed one of the first three descriptors, the next file opened would get its number and
/// receive our output. Fills them with descriptors that refuse to read and to write.
void keep_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    const int opened = ::open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (opened != fd && opened >= 0) ::close(opened);
  }
}

/// Remembers the error of a failed write to stdout. Stream exceptions do not work for this: LibTorch's
/// printing of tensors copies the stream's state to a stream without a buffer, which then throws.
class Output : public std::streambuf {
 public:
  Output() : to_(std::cout.rdbuf(this)) {}
  ~Output() override { std::cout.rdbuf(to_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// 0 if no error occurred.
  int error() const noexcept { return error_; }

 protected:
  int_type overflow(int_type c) override {
    errno = 0;
    return noted(to_->sputc(traits_type::to_char_type(c)), traits_type::eof());
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    errno = 0;
    const std::streamsize written = to_->sputn(text, size);
    if (written != size) note();
    return written;
  }
  int sync() override {
    errno = 0;
    return noted(to_->pubsync(), -1);
  }

 private:
  template <class T>
  T noted(T result, T failed) {
    if (result == failed) note();
    return result;
  }
  void note() {
    if (error_ == 0) error_ = errno != 0 ? errno : EIO;
  }

  std::streambuf* to_;
  int error_ = 0;
};

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

/// Describes the arguments that CLI11 could not place: the first option among them, otherwise the first.
std::string unexpected(const CLI::App& command, const std::vector<std::string>& words) {
  const std::string* first = &words.front();
  for (const auto& word : words) {
    if (word.size() > 1 && word[0] == '-') {
      first = &word;
      break;
    }
  }
  const std::string name = first->substr(0, first->find('='));
  if (name.size() < 2 || name[0] != '-') return "unexpected argument \"" + *first + "\"";
  return "unknown option \"" + name + "\"" + tools::did_you_mean(name, tools::option_names(command));
}

/// The text with the option that it begins with as it was typed: CLI11 says the first of an option's names.
std::string as_typed(const CLI::App& command, const std::string& text,
                     const std::vector<std::string>& words) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string first = option->get_name();
    if (text.rfind(first + ":", 0) != 0 && text.rfind(first + " ", 0) != 0) continue;
    for (const auto& word : words) {
      if (word == "--") break;  // what follows is a program's
      const std::string name = word.substr(0, word.find('='));
      if (name[0] == '-' && option->check_name(name)) return name + text.substr(first.size());
    }
  }
  return text;
}

/// The error in the command line, and a hint at --help.
std::string describe(const CLI::App& app, const CLI::ParseError& error,
                     const std::vector<std::string>& words) {
  const std::string first_word = words.empty() ? "" : words.front();
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string name = chosen.empty() ? "torchtap" : "torchtap " + command.get_name();
  std::string text = as_typed(command, error.what(), words);
  // A misspelt option may be the cause of a missing required one.
  auto left = command.remaining();
  left.erase(std::find(left.begin(), left.end(), "--"), left.end());  // what follows is a program's
  if (!left.empty()) text = unexpected(command, left);
  if (chosen.empty() && !first_word.empty() && first_word[0] != '-') {
    text = "unknown command \"" + first_word + "\"" + tools::did_you_mean(first_word, command_names(app));
  } else if (chosen.empty() && first_word.empty()) {
    text = "a command is missing: " + base::quoted(command_names(app));
  }
  return name + ": " + tools::printable(text, true) + "\nSee " + name + " --help.\n";
}

int run(int argc, char** argv, tools::Notes& notes) {
  CLI::App app{"See inside LibTorch models.", "torchtap"};
  tools::set_help(app);
  app.set_version_flag("-V,--version", "torchtap " TORCHTAP_VERSION " (LibTorch " TORCH_VERSION ")");
  app.require_subcommand(1);
  app.footer(
      "torchtap COMMAND --help says what a command takes, with examples; man torchtap has all of them.");
  std::size_t titled = 0;
  const auto title = [&](const char* text) {  // of the commands that were added since the last one
    const auto commands = app.get_subcommands({});
    for (; titled < commands.size(); ++titled) commands[titled]->group(text);
  };
  tools::add_list(app);
  tools::add_record(app);
  tools::add_trace(app);
  tools::add_report(app);
#ifdef TORCHTAP_HAVE_EXPLORER
  tools::add_explore(app);
#endif
  title("Run a model");
  tools::preload::add_command(app);
  tools::add_replay(app);
  title("Run a program, or what its monitor kept");
  tools::add_show(app);
  tools::add_check(app);
  tools::add_formats(app);
  tools::add_compare(app);
  title("Look at recordings");
  tools::add_merge(app);
  tools::add_convert(app);
  tools::recover::add_command(app);
  title("Make other recordings and files");
  tools::add_calibrate(app);
  tools::add_evaluate(app);
  tools::add_quantize(app);
  title("Quantize");
  tools::stream::add_streams(app);
  tools::stream::add_tail(app);
  tools::stream::add_watch(app);
  tools::stream::add_video(app);
  title("Watch what programs publish");
  tools::add_completion(app);
  title("Shells");
  for (CLI::App* command : app.get_subcommands({})) {
    notes.add_option(*command);
    tools::guard_values(*command);
  }
  if (argc == 4 && std::strcmp(argv[1], "--write-answers") == 0) {  // asked by the build
    const auto all = tools::answers_of(app);
    tools::write_answers(argv[2], all);
    tools::write_man_page(argv[3], all);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& status) {  // exit status of a subcommand
    return status.get_exit_code();
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::cerr << describe(app, error, {argv + std::min(argc, 1), argv + argc});
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_descriptors();
  // As Python does at its import: without it the first operations of a process may run on more threads than
  // later ones, and round otherwise, where cores have two threads each.
  at::init_num_threads();
  Output output;
  tools::Notes notes;
  int status = 2;
  try {
    status = run(argc, argv, notes);
    notes.end(status);
  } catch (const std::exception& error) {
    notes.end(status);
    std::cerr << "torchtap: " << tools::explain(error) << '\n';
  }
  std::cout.flush();
  if (output.error() != 0) {
    std::cerr << "torchtap: cannot write to stdout: " << std::strerror(output.error()) << '\n';
    return 2;
  }
  return status;
}
