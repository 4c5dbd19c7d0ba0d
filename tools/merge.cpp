#include <CLI/CLI.hpp>

#include <memory>

#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>

#include "checks.hpp"
#include "commands.hpp"
#include "json.hpp"
#include "progress.hpp"

namespace torchtap::tools {
namespace {

constexpr char kExamples[] = R"(
Makes one recording of several of the same model, as if one run had seen all that they saw, in the order given:
reductions are merged by their law, kept samples are appended. The parts must have recorded the same modules in the
same order, of the same kind and with the same reductions.

Results alone cannot be merged: recordings keep the state of torchtap's own reductions beside them. Callables and
types of a program's own, reductions::map, and recordings of torchtap before it kept states, cannot be merged; in C++,
Recorder::merge does that.

One module is in memory at a time, with all of its samples.

Examples:
  torchtap merge part1/ part2/ --save all/
  torchtap merge parts/*/ --save all/ --overwrite

Exit status: 0, or 2 if the parts do not fit each other or something cannot be read or written.)";

struct Options {
  std::vector<std::string> parts;
  std::string save;
  bool overwrite = false;
  bool json = false;
};

}  // namespace

void add_merge(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("merge", "Make one recording of several of the same model");
  command->footer(kExamples);
  command->add_option("parts", options->parts, "Recordings, in the order in which they were made")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--save", options->save, "Where the merged recording goes")->required()->check(place());
  command->add_flag("--overwrite", options->overwrite, "Replace a recording that is there");
  command->add_flag("--json", options->json, "Say what was written, as JSON");
  command->callback([options] {
    std::unique_ptr<Progress> progress;
    storage::MergeOptions merging;
    merging.save(storage::SaveOptions().mkdir(true).overwrite(options->overwrite));
    merging.on_entry([&](std::size_t count) {
      if (progress == nullptr)
        progress = std::make_unique<Progress>("merging", static_cast<std::int64_t>(count));
      progress->advance();
    });
    storage::merge(options->parts, options->save, reductions::restore, merging);
    progress.reset();
    if (!options->json) return;
    std::int64_t samples = 0;
    const storage::Recording merged = storage::load(options->save);
    for (const auto& entry : merged) samples += entry.samples();
    print({{"saved", options->save},
           {"parts", options->parts},
           {"modules", merged.size()},
           {"samples", samples}});
  });
}

}  // namespace torchtap::tools
