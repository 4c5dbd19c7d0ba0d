#include "command.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <torchtap/storage/recover.hpp>

#include "json.hpp"
#include "words.hpp"

namespace torchtap::recover {
namespace {

using tools::counted;
using tools::printable;

constexpr char kDetails[] = R"(
A recording that goes to disk as its samples come is a list of shards and a journal until it is finished. After
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
  bool json = false;
};

int run(const Arguments& arguments) {
  const storage::Recovery found = storage::recover(
      arguments.directory, storage::RecoverOptions().repair(!arguments.check).verify(!arguments.quick));
  const int status = found.missing.empty() ? 0 : 1;
  if (arguments.json) {
    tools::print({{"directory", arguments.directory},
                  {"modules", found.entries},
                  {"shards", found.shards},
                  {"samples", found.samples},
                  {"salvaged", found.salvaged},
                  {"bytes", found.bytes},
                  {"was_finished", found.finished},
                  {"repaired", !found.finished && !arguments.check},
                  {"missing", found.missing}});
    return status;
  }
  for (const auto& line : found.missing) std::cout << "missing: " << printable(line) << '\n';
  std::cout << printable(arguments.directory) << ": " << counted(found.samples, "sample") << " of "
            << counted(found.entries, "module") << " in " << counted(found.shards, "shard") << ", "
            << found.bytes << " bytes";
  if (found.salvaged > 0)
    std::cout << "; " << found.salvaged << " of them from shards that were being filled";
  std::cout << (found.finished    ? "; it was finished, nothing had to be done"
                : arguments.check ? "; not finished: torchtap recover finishes it"
                                  : "; finished now")
            << ".\n";
  return status;
}

}  // namespace

void add_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("recover", "Finish a spooled recording that a crash cut off");
  command->footer(kDetails);
  command->add_option("directory", arguments->directory, "The recording")->required();
  command->add_flag("--check", arguments->check, "Only say what is there and what is missing");
  command->add_flag("--quick", arguments->quick, "Compare sizes only, do not read the shards");
  command->add_flag("--json", arguments->json, "For programs");
  command->callback([arguments] {
    const int status = run(*arguments);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace torchtap::recover
