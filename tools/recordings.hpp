#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <torchtap/storage/recording.hpp>
#include <vector>

/// Recordings as the subcommands see them, whoever wrote them.
namespace torchtap::tools {

/// One module of a recording. Its values are read when they are asked for.
struct Layer {
  std::int64_t index = 0;
  std::string path;
  storage::RecordedEntry entry;
};

/// What a recording has: its modules in order, and who wrote it.
struct Layers {
  std::vector<Layer> all;
  std::string library;
  std::string created;
  /// The index of the module of each call, in the order in which they returned; empty where nobody knows.
  std::vector<std::int64_t> calls;

  /// By path or alias; where none is called so, by index ("3"; "#3" is always an index). Throws
  /// `c10::IndexError` listing the nearest.
  const Layer& at(const std::string& name) const;
};

/// A recording, a single `.pt` file, or a folder of a Python program: `names.json`, a list of the paths of
/// modules, for the i-th of them the file `i.pt` of `torch.save`, and perhaps `calls.json`, `Layers::calls`.
/// Throws as `storage::load`.
Layers open_layers(const std::string& path);

/// One result of an entry: a tensor, or the tensors of a list.
struct Result {
  std::string name;  ///< "variance"; "" where an entry has but one
  bool list = false;
  std::vector<at::Tensor> tensors;  ///< undefined where there was none
};

/// Everything in `value`; deeper nesting in names: "0.mean", "[2].weight".
std::vector<Result> results_of(const core::Value& value);
/// One of them by name; with "", the only one. Throws `c10::IndexError` listing the names there are.
const Result& find_result(const std::vector<Result>& results, const std::string& name,
                          const std::string& path);

/// `layer1.conv`, or `(root)`; `layer1.lstm[1]` of its tensor 1, where each has its own results.
std::string shown_path(const std::string& path, std::int64_t slot = -1);

}  // namespace torchtap::tools
