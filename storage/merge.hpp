#pragma once

/// Merges several recordings of the same model into one, as if a single run had recorded all of them.

#include <torch/arg.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/core/api.hpp>
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
  /// Called before each entry, with the number of entries: for showing progress.
  TORCH_ARG(std::function<void(std::size_t count)>, on_entry) = nullptr;
};

/// Merges the recordings in the directories `parts`, in the order given, and saves the result to `directory`
/// as `save` does: reductions are merged by their saved states, kept samples are appended. One entry is in
/// memory at a time, with all of its samples.
///
///     storage::merge({"part1", "part2"}, "all", reductions::restore,
///                    storage::MergeOptions().save(storage::SaveOptions().mkdir(true)));
///
/// Throws `c10::ValueError` if there are no parts; if the parts did not record the same modules in the same
/// order, of the same kind and with the same reductions; for results without a saved state (of callables,
/// `reductions::map` and types without a recipe). Also throws what `load`, `save`, `restore` and the
/// reductions' `merge` throw. On error nothing is written to `directory`, and an older recording there is
/// unchanged.
TORCHTAP_API void merge(const std::vector<std::string>& parts, const std::string& directory,
                        const Restore& restore, const MergeOptions& options = {});

}  // namespace torchtap::storage
