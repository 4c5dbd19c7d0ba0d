#pragma once

/// Merges several recordings of the same model into one, as if a single run had recorded all of them.

#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::core {
class Sink;
}

namespace torchtap::storage {

/// Makes a reduction from its saved state: `reductions::restore`, or a function that also knows your own
/// reductions.
using Restore = std::function<std::unique_ptr<core::Sink>(const core::SavedSink&)>;

/// How to merge recordings.
class TORCHTAP_API MergeOptions {
  /// How to save the result.
  TORCH_ARG(SaveOptions, save) = SaveOptions();
  /// Called before each entry, with the number of entries: for showing progress. Where parts are merged in
  /// rounds, each round counts.
  TORCH_ARG(std::function<void(std::size_t count)>, on_entry) = nullptr;
  /// Merges parts that recorded different modules, as the ranks of a pipeline do: the result has the modules
  /// of all parts. Otherwise different modules are an error.
  TORCH_ARG(bool, all_modules) = false;
  /// How many parts are open at a time, at least 2. More parts are merged in rounds, with the same bits: the
  /// first parts to a temporary recording beside `directory`, this one and the next parts to another, and so
  /// on.
  TORCH_ARG(std::int64_t, at_once) = 256;
};

/// Merges the recordings in the directories `parts`, in the order given, and saves the result to `directory`
/// as `save` does: reductions are merged by their saved states, kept samples are appended. Entries are joined
/// by the path of their module and their kind, in any order; the result has the entries of the first part
/// first. One entry is in memory at a time, with all of its samples, or with two states of its reduction for
/// any number of parts. Shards of spooled recordings are copied as files, and are never in memory.
///
///     storage::merge({"part1", "part2"}, "all", reductions::restore,
///                    storage::MergeOptions().save(storage::SaveOptions().mkdir(true)));
///
/// Throws `c10::ValueError` if there are no parts; if the parts did not record the same modules, of the same
/// kind and with the same reductions; for results without a saved state (of callables, `reductions::map` and
/// types without a recipe). Passes on exceptions of `load`, `save`, `restore` and the reductions' `merge`. On
/// error nothing is written to `directory`, and an older recording there is unchanged.
TORCHTAP_API void merge(const std::vector<std::string>& parts, const std::string& directory,
                        const Restore& restore, const MergeOptions& options = {});

}  // namespace torchtap::storage
