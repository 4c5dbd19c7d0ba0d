#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/storage/recording.hpp>

/// A common view of recordings for the subcommands, whether torchtap or Python wrote them.
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
  std::string library;
  std::string created;
  /// The index of the called module for each call, in order of return; empty if unknown.
  std::vector<std::int64_t> calls;

  /// By path or alias; if none matches, by index ("3"; "#3" is always an index). Throws `c10::IndexError`
  /// that lists the nearest names.
  const Layer& at(const std::string& name) const;
  /// All modules for "", otherwise the one that `at` finds.
  std::vector<const Layer*> chosen(const std::string& name) const;
};

/// Opens a recording, a single `.pt` file, or a folder written by Python: `names.json`, a list of module
/// paths; `i.pt` of `torch.save` for the i-th of them; and optionally `calls.json`, which fills
/// `Layers::calls`. Throws as `storage::load`.
Layers open_layers(const std::string& path);

/// One result of an entry: a tensor, or the tensors of a list.
struct Result {
  std::string name;  ///< "variance"; "" if the entry has only one
  bool list = false;
  std::vector<at::Tensor> tensors;                             ///< undefined where there was no tensor
  std::optional<storage::SampleRange> spooled = std::nullopt;  ///< instead of `tensors`: see blocks.hpp
};

/// All results in `value`; nested ones are named "0.mean", "[2].weight".
std::vector<Result> results_of(const core::Value& value);
/// The result called `name`; with "", the only one. Throws `c10::IndexError` that lists the existing names.
const Result& find_result(const std::vector<Result>& results, const std::string& name,
                          const std::string& path);

/// `layer1.conv`, or `(root)`; `layer1.lstm[1]` for slot 1 if slots have separate results.
std::string shown_path(const std::string& path, std::int64_t slot = -1);

}  // namespace torchtap::tools
