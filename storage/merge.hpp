#pragma once

/// Making one recording of several of the same model, as if one run had seen all that they saw.

#include <torch/arg.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/storage/file.hpp>
#include <vector>

namespace torchtap::core {
class Sink;
}

namespace torchtap::storage {

/// Makes a reduction of its saved state: `reductions::restore`, or a function that also knows reductions of
/// your own.
using Restore = std::function<std::unique_ptr<core::Sink>(const core::SavedSink&)>;

/// How to merge recordings.
class MergeOptions {
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
/// order, of the same kind and with the same reductions; for results without a saved state, which callables,
/// `reductions::map` and types without a recipe leave; and what `load`, `save`, `restore` and the reductions'
/// `merge` throw. Nothing is left at `directory` then, and an older recording there is untouched.
void merge(const std::vector<std::string>& parts, const std::string& directory, const Restore& restore,
           const MergeOptions& options = {});

}  // namespace torchtap::storage
