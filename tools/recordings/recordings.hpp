#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/storage/recording.hpp>

/// A common view of recordings and of files of tensors for the subcommands.
namespace torchtap::tools {

/// One module of a recording. Its values are read on demand.
struct Layer {
  std::int64_t index = 0;
  std::string path;
  storage::RecordedEntry entry;
};

/// The modules of a recording in order.
struct Layers {
  std::vector<Layer> all;
  std::vector<storage::RecordedEntry> beside;  ///< the rows of a dump, with the calls that these are of
  std::string library;
  std::string created;
  /// Whether a manifest names the entries, in the order of the model; otherwise the names of files do.
  bool recorded = false;
  /// Whether they are the values of one file, by the names that they have there.
  bool named = false;

  /// By path or alias; if nothing matches, by index ("3"; "#3" is always an index). Throws `c10::IndexError`
  /// that lists the nearest names.
  const Layer& at(const std::string& name) const;
  /// All modules for "", otherwise the module that `at` finds.
  std::vector<const Layer*> chosen(const std::string& name) const;
  /// Whether it is one file, whose name says nothing of a module.
  bool is_file() const { return !recorded && !named && all.size() == 1; }
};

/// Opens a recording; a `.pt`, `.npy` or `.safetensors` file; or a folder of such files, NAME.npy for the
/// module or tensor called NAME, "root" for the root. Parts of one `.safetensors` file (NAME-00001-of-00002)
/// become one entry. Throws as `storage::load`.
Layers open_layers(const std::string& path);
/// A file of named tensors, such as a state_dict, as a layer for each tensor, and `with_others` for all else
/// that it holds; anything else as it is.
Layers by_name(Layers layers, bool with_others = false);

/// One result of an entry: a tensor, or the tensors of a list.
struct Result {
  std::string name;  ///< "variance"; "" if the entry has only one
  bool list = false;
  std::vector<at::Tensor> tensors;                             ///< undefined where there was no tensor
  std::optional<storage::SampleRange> spooled = std::nullopt;  ///< instead of `tensors`: see blocks.hpp
};

/// Something in a file that is no tensor.
struct OtherValue {
  std::string name;
  core::Value value;  ///< a text, nothing, or a list or dict without items
  /// Whether the text stands for an object that cannot be read, or the name for a key that cannot.
  bool unreadable = false;
};

/// All results in `value`; nested ones are named "0.mean", "[2].weight".
std::vector<Result> results_of(const core::Value& value);
/// All else in `value`: what is in neither is in no file.
std::vector<OtherValue> others_of(const core::Value& value);
/// The result called `name`; with "", the only one. Throws `c10::IndexError` that lists the existing names.
const Result& find_result(const std::vector<Result>& results, const std::string& name,
                          const std::string& path);

/// `layer1.conv`, or `(root)`; `layer1.lstm[1]` for slot 1 if slots have separate results.
std::string shown_path(const std::string& path, std::int64_t slot = -1);

}  // namespace torchtap::tools
