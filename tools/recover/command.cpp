#include "command.hpp"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include <torchtap/storage/recover.hpp>

#include "files/json.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools::recover {
namespace {

using tools::counted;
using tools::printable;

constexpr char kDetails[] = R"(
A spooled recording goes to disk as its samples arrive and consists of shards and a journal until it is finished.
After a crash, this command completes unfinished shards up to their last whole sample, leaves out damaged samples, and
writes the manifest. Unusable files are kept and renamed to *.lost.

Examples:
  torchtap recover analysis/           # repair
  torchtap recover --check analysis/   # only look

Exit status: 0 if everything that had reached the disk is there, 1 if something is missing, 2 if there is no recording.)";

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
  if (found.salvaged > 0) std::cout << "; " << found.salvaged << " of them from unfinished shards";
  std::cout << (found.finished    ? "; it was already finished, nothing to do"
                : arguments.check ? "; not finished: run torchtap recover to finish it"
                                  : "; finished now")
            << ".\n";
  return status;
}

}  // namespace

void add_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("recover", "Finish a spooled recording after a crash");
  command->footer(kDetails);
  command->add_option("directory", arguments->directory, "The recording")->required();
  command->add_flag("--check", arguments->check, "Only report what is present and what is missing");
  command->add_flag("--quick", arguments->quick, "Compare sizes only, do not read the shards");
  command->add_flag("--json", arguments->json, "Write JSON");
  command->callback([arguments] {
    const int status = run(*arguments);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace torchtap::tools::recover
