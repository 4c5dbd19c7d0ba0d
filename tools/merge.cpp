#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/recording.hpp>

#include "checks.hpp"
#include "commands.hpp"
#include "json.hpp"
#include "progress.hpp"
#include "recordings.hpp"

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

struct Part {
  std::string path;
  storage::Recording recording;
};

/// With `Options::all_tensors`: the value is a dict by slot.
bool by_slots(const storage::RecordedEntry& entry) {
  return !entry.keys().empty() && entry.keys().front() == "0";
}

void check_same(const Part& first, const Part& other) {
  const auto differ = [&](const storage::RecordedEntry& entry, const char* what, const std::string& mine,
                          const std::string& theirs) {
    TORCH_CHECK_VALUE(mine == theirs, "cannot merge \"", other.path, "\" into \"", first.path, "\": entry ",
                      entry.index(), " (", shown_path(entry.path()), ") has the ", what, " \"", mine,
                      "\" in the first and \"", theirs, "\" in the second.");
  };
  TORCH_CHECK_VALUE(first.recording.size() == other.recording.size(), "cannot merge \"", other.path,
                    "\" into \"", first.path, "\": the first has ", first.recording.size(),
                    " modules, the second ", other.recording.size(), ".");
  for (std::size_t i = 0; i < first.recording.size(); ++i) {
    const auto& mine = first.recording.at(static_cast<std::int64_t>(i));
    const auto& theirs = other.recording.at(static_cast<std::int64_t>(i));
    differ(mine, "path", mine.path(), theirs.path());
    differ(mine, "kind", mine.kind(), theirs.kind());
    differ(mine, "reduction", mine.reduction(), theirs.reduction());
  }
}

void append(core::Value::List& list, const core::Value& value) {
  list.insert(list.end(), value.list().begin(), value.list().end());
}

/// Kept samples, one list after the other; by slot if there are several.
core::Value appended(const std::vector<storage::RecordedEntry>& parts) {
  core::Value::List list;
  core::Value::Dict slots;
  for (const auto& part : parts) {
    const core::Value value = part.value();
    if (value.is_list()) {
      append(list, value);
      continue;
    }
    for (std::size_t i = 0; i < value.dict().size(); ++i) {
      if (i == slots.size()) slots.emplace_back(value.dict()[i].first, core::Value::List());
      core::Value::List so_far = slots[i].second.list();
      append(so_far, value.dict()[i].second);
      slots[i].second = std::move(so_far);
    }
  }
  return slots.empty() ? core::Value(std::move(list)) : core::Value(std::move(slots));
}

/// Reductions, by their states.
void reduce(const std::vector<storage::RecordedEntry>& parts, storage::Entry& merged) {
  std::vector<std::unique_ptr<core::Sink>> slots;
  for (const auto& part : parts) {
    const auto states = part.state();
    TORCH_CHECK_VALUE(
        !states.empty(), "\"", part.file(), "\" holds results of ", part.reduction(),
        " and no state to go on from, so they cannot be merged. States are kept of torchtap's own "
        "reductions, not of callables, of types of a program's own and of map.");
    for (std::size_t i = 0; i < states.size(); ++i) {
      auto sink = reductions::restore(states[i]);
      if (i == slots.size()) {
        slots.push_back(std::move(sink));
      } else {
        slots[i]->merge(*sink);
      }
    }
  }
  core::Value::Dict values;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    values.emplace_back(std::to_string(i), core::to_value(slots[i]->results()));
    merged.state.push_back(core::save(*slots[i]).value());
  }
  merged.value = by_slots(parts.front()) ? core::Value(std::move(values)) : values.front().second;
}

storage::Entry merge_entry(const std::vector<Part>& all, std::size_t index) {
  storage::Entry merged;
  std::vector<storage::RecordedEntry> parts;  // those that recorded something
  for (const auto& part : all) {
    const auto& entry = part.recording.at(static_cast<std::int64_t>(index));
    merged.samples += entry.samples();
    if (entry.samples() != 0) parts.push_back(entry);
  }
  const auto& first = all.front().recording.at(static_cast<std::int64_t>(index));
  merged.path = first.path();
  merged.aliases = first.aliases();
  merged.type = first.type();
  merged.kind = first.kind();
  merged.reduction = first.reduction();
  try {
    if (parts.size() == 1) {
      merged.value = parts.front().value();
      merged.state = parts.front().state();
    } else if (!parts.empty() && merged.reduction.empty()) {
      merged.value = appended(parts);
    } else if (!parts.empty()) {
      reduce(parts, merged);
    }
  } catch (c10::Error& error) {
    error.add_context(c10::str("while merging entry ", index, " (", shown_path(merged.path), ")"));
    throw;
  }
  return merged;
}

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
    std::vector<Part> parts;
    for (const auto& path : options->parts) parts.push_back({path, storage::load(path)});
    for (const auto& part : parts) check_same(parts.front(), part);
    const std::size_t count = parts.front().recording.size();
    Progress progress("merging", static_cast<std::int64_t>(count));
    storage::save(
        options->save, count,
        [&](std::size_t i) {
          progress.advance();
          return merge_entry(parts, i);
        },
        storage::SaveOptions().mkdir(true).overwrite(options->overwrite));
    if (!options->json) return;
    std::int64_t samples = 0;
    for (const auto& part : parts) {
      for (const auto& entry : part.recording) samples += entry.samples();
    }
    print({{"saved", options->save}, {"parts", options->parts}, {"modules", count}, {"samples", samples}});
  });
}

}  // namespace torchtap::tools
