#pragma once

/// One entry of a recording: who it is, and what it holds.

#include <cstdint>
#include <string>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/value.hpp>
#include <vector>

namespace torchtap::storage {

/// Who an entry is: the module and what was recorded of it.
struct EntryId {
  /// The module's dotted path in its root.
  std::string path;
  /// Its other paths, if it is a shared module.
  std::vector<std::string> aliases;
  /// The module's type, such as "torch::nn::LinearImpl".
  std::string type;
  /// What was recorded: "ForwardInput", "ForwardOutput", "BackwardInput" …
  std::string kind;
};

/// What one subrecorder has to save.
struct Entry : EntryId {
  /// How many samples were recorded.
  std::int64_t samples = 0;
  /// What they were reduced to, such as "Moments"; "" where every sample is kept.
  std::string reduction;
  /// What goes into the file: a tensor, a dict of a reduction's results, or the list of samples. Nothing (or
  /// an empty list or dict) if there are no samples.
  core::Value value;
  /// The reductions behind `value`, so that recordings can be merged: one, or one for each slot with
  /// `Options::all_tensors`. Empty where samples are kept, and for reductions that no file can hold.
  std::vector<core::SavedSink> state;
};

}  // namespace torchtap::storage
