#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>

#include "commands.hpp"
#include "files/json.hpp"
#include "options/option_checks.hpp"
#include "terminal/message_text.hpp"
#include "terminal/progress.hpp"

namespace torchtap::tools {
namespace {

constexpr char kMergeExamples[] = R"(
Makes one recording of several of the same model, as if one run had seen all that they saw, in the order given.
Reductions are merged by their law, kept samples are appended. Modules are joined by their paths, in whatever order each
part has them. The parts must have recorded the same modules, of the same kind and with the same reductions; with
--all-modules, as for the ranks of a pipeline, the result has the modules of all parts.

A folder of ranks, as mpirun -n 4 torchtap preload writes, stands for rank0, rank1 and so on in it.

Parts of many ranks are often named by a pattern, which a shell sorts as text: rank10/ before rank2/. --by-number takes
them in the order of the numbers in their names. The order matters for kept samples, for reductions such as first and
last, and for the last bits of sums.

Results alone cannot be merged: recordings keep the state of torchtap's own reductions beside them. Callables and
types of a program's own, reductions::map, and recordings of torchtap before it kept states, cannot be merged; in C++,
Recorder::merge does that.

One module is in memory at a time: of a reduction two states, whatever the number of parts; of kept samples all. Files
of spooled recordings are copied as they are. More than 256 parts are merged in rounds, with a temporary recording
beside the result.

Examples:
  torchtap merge part1/ part2/ --save all/
  torchtap merge out/ --save all/
  torchtap merge ranks/part*/ --by-number --save all/ --overwrite
  torchtap merge stage*/ --all-modules --save all/

Exit status: 0, or 2 if the parts do not fit each other or something cannot be read or written.)";

/// Compares texts by the numbers in them, so that "rank2" comes before "rank10".
bool by_number(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto end_of = [&](const std::string& text, std::size_t at) {
      while (at < text.size() && digit(text[at])) ++at;
      return at;
    };
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    const std::size_t end_a = end_of(a, i), end_b = end_of(b, j);
    if (end_a - i != end_b - j) return end_a - i < end_b - j;
    const int order = a.compare(i, end_a - i, b, j, end_b - j);
    if (order != 0) return order < 0;
    i = end_a;
    j = end_b;
  }
  return a.size() - i < b.size() - j;
}

/// The recordings of ranks in a folder that is none itself, by number; otherwise the folder.
std::vector<std::string> parts_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> ranks;
  if (!fs::exists(fs::path(folder) / "manifest.json")) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.size() > 4 && name.rfind("rank", 0) == 0 &&
          name.find_first_not_of("0123456789", 4) == std::string::npos)
        ranks.push_back(entry.path().string());
    }
  }
  std::sort(ranks.begin(), ranks.end(), by_number);
  return ranks.empty() ? std::vector<std::string>{folder} : ranks;
}

struct MergeOptions {
  std::vector<std::string> parts;
  std::string save;
  bool overwrite = false;
  bool by_number = false;
  bool all_modules = false;
  bool json = false;
};

}  // namespace

void add_merge(CLI::App& app) {
  auto options = std::make_shared<MergeOptions>();
  CLI::App* command = app.add_subcommand("merge", "Make one recording of several of the same model");
  command->footer(kMergeExamples);
  command->add_option("parts", options->parts, "Recordings, in the order in which they are merged")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("-o,--save", options->save, "Where the merged recording goes")
      ->required()
      ->check(place());
  add_overwrite(*command, options->overwrite);
  command->add_flag("--by-number", options->by_number,
                    "Take the parts in the order of the numbers in their names");
  command->add_flag("--all-modules", options->all_modules, "Merge parts that recorded different modules");
  command->add_flag("--json", options->json, "Say what was written, as JSON");
  command->callback([options] {
    std::unique_ptr<Progress> progress;
    storage::MergeOptions merging;
    merging.save(storage::SaveOptions().mkdir(true).overwrite(options->overwrite));
    merging.all_modules(options->all_modules);
    std::vector<std::string> parts;
    for (const std::string& part : options->parts) {
      for (std::string& one : parts_in(part)) parts.push_back(std::move(one));
    }
    options->parts = std::move(parts);
    if (options->by_number) std::stable_sort(options->parts.begin(), options->parts.end(), by_number);
    merging.on_entry([&](std::size_t count) {
      if (progress == nullptr)
        progress = std::make_unique<Progress>("merging", static_cast<std::int64_t>(count));
      progress->advance();
    });
    storage::merge(options->parts, options->save, reductions::restore, merging);
    progress.reset();
    std::set<std::filesystem::path> known;
    for (const std::string& part : options->parts) {
      if (!known.insert(std::filesystem::weakly_canonical(part)).second)
        std::cerr << "torchtap: \"" << printable(part) << "\" was given twice, so its samples count twice.\n";
    }
    std::int64_t samples = 0;
    const storage::Recording merged = storage::load(options->save);
    std::int64_t modules = 0;
    for (const auto& entry : merged) {
      if (storage::is_beside(entry.kind())) continue;
      samples += entry.samples();
      ++modules;
    }
    if (!options->json) {
      std::cout << counted(modules, "module") << ", " << counted(samples, "sample") << " of "
                << counted(static_cast<std::int64_t>(options->parts.size()), "recording") << " in "
                << printable(options->save) << '\n';
      return;
    }
    print({{"saved", options->save}, {"parts", options->parts}, {"modules", modules}, {"samples", samples}});
  });
}

}  // namespace torchtap::tools
