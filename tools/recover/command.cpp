#include "command.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <torchtap/core/error.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::recover {
namespace {

constexpr char kDetails[] = R"(
A recording that is spooled (recorders::Options::spool) is a list of shards and a journal until it is finished. After
a crash, this completes the shards that were being filled as far as their samples are whole, leaves out what is
damaged, and writes the manifest. Files that are of no use stay there, renamed to *.lost.

Exit status: 0 if nothing is missing of what had reached the disk, 1 if something is, 2 if there is no recording.

Examples:
  torchtap recover analysis/           repair
  torchtap recover --check analysis/   only look
)";

struct Arguments {
  std::string directory;
  bool check = false;
  bool quick = false;
};

std::string counted(std::int64_t number, const std::string& word, const std::string& words) {
  return std::to_string(number) + " " + (number == 1 ? word : words);
}

int run(const Arguments& arguments) {
  storage::Recovery found;
  try {
    found = storage::recover(arguments.directory,
                             storage::RecoverOptions().repair(!arguments.check).verify(!arguments.quick));
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
  for (const auto& line : found.missing) std::cout << "missing: " << line << '\n';
  std::cout << arguments.directory << ": " << counted(found.samples, "sample", "samples") << " of "
            << counted(found.entries, "module", "modules") << " in "
            << counted(found.shards, "shard", "shards") << ", " << found.bytes << " bytes";
  if (found.salvaged > 0)
    std::cout << "; " << found.salvaged << " of them from shards that were being filled";
  std::cout << (found.finished    ? "; it was finished, nothing had to be done"
                : arguments.check ? "; not finished: torchtap recover finishes it"
                                  : "; finished now")
            << ".\n";
  return found.missing.empty() ? 0 : 1;
}

}  // namespace

void add_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("recover", "Finish a spooled recording that a crash cut off");
  command->footer(kDetails);
  command->add_option("directory", arguments->directory, "The recording")->required();
  command->add_flag("--check", arguments->check, "Only say what is there and what is missing");
  command->add_flag("--quick", arguments->quick, "Compare sizes only, do not read the shards");
  command->callback([arguments] {
    const int status = run(*arguments);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace torchtap::recover
