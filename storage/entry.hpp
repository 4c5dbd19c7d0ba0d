#pragma once

/// One entry of a recording: its module, and the value to save.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/not_recorded.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::storage {

/// Identifies an entry by its module and the kind of data recorded.
struct TORCHTAP_API EntryId {
  /// The module's dotted path in its root.
  std::string path;
  /// Its other paths, if it is a shared module.
  std::vector<std::string> aliases;
  /// The module's pretty type name, such as "Linear".
  std::string type;
  /// The kind of its recorder: "ForwardInput", "ForwardOutput", "BackwardInput" …
  std::string kind;
};

/// Whether an entry of this kind has the values beside the rows of a dump, or says which calls rows are of,
/// and is no module's (extras/rows/FORMAT.md): "Beside", "Place", "ForwardOutput.calls".
TORCHTAP_API bool is_beside(const std::string& kind);
/// Whether it says which calls rows are of: "ForwardOutput.calls".
TORCHTAP_API bool is_calls(const std::string& kind);

/// One entry to save: the data of one subrecorder.
struct TORCHTAP_API Entry : EntryId {
  /// How many samples were recorded.
  std::int64_t samples = 0;
  /// The reduction, such as "Moments"; "" if every sample is kept.
  std::string reduction;
  /// The content of the file: a tensor, a dict of a reduction's results, or the list of samples. Nothing (or
  /// an empty list or dict) if there are no samples.
  core::Value value;
  /// The saved states of the reductions behind `value`, which `merge` needs: one, or one per slot with
  /// `RecorderOptions::all_tensors`. Empty if samples are kept, and for reductions that cannot be saved.
  std::vector<core::SavedSink> state;
  /// What is missing among the samples.
  core::NotRecorded not_recorded;
  /// What there is to say beside that: why there may be no samples although the module ran, for example;
  /// empty if nothing is known.
  std::string note;
};

}  // namespace torchtap::storage
