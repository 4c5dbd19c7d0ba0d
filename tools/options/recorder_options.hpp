#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/quantization/formats.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/parse.hpp>

/// Maps the values of --what and --reduce to recorders and reductions. Header-only: the preload agent uses it
/// too.
namespace torchtap::tools {

/// The command's names for the kinds of recorders.
struct KindWord {
  const char* word;
  recorders::RecorderKind kind;
};
inline constexpr KindWord kKindWords[] = {{"pre", recorders::RecorderKind::forward_pre},
                                          {"input", recorders::RecorderKind::forward_input},
                                          {"output", recorders::RecorderKind::forward_output},
                                          {"grad-input", recorders::RecorderKind::backward_input},
                                          {"grad-output", recorders::RecorderKind::backward_output},
                                          {"grad-parameter", recorders::RecorderKind::backward_parameter}};

inline const std::vector<std::string>& recorder_names() {
  static const auto& names = *new const std::vector<std::string>([] {
    std::vector<std::string> words;
    for (const auto& [word, kind] : kKindWords) words.emplace_back(word);
    return words;
  }());
  return names;
}

inline std::unique_ptr<recorders::Recorder> make_recorder(const std::string& what,
                                                          recorders::RecorderOptions options) {
  for (const auto& [word, kind] : kKindWords) {
    if (what == word) return recorders::make(kind, std::move(options));
  }
  TORCH_CHECK_VALUE(false, "\"", what, "\" cannot be recorded.");
}

/// The help on --stream-memory.
inline constexpr char kStreamMemoryHelp[] =
    "MiB of memory that readers may share at most; 4 are taken for the first reader, and more when readers "
    "would "
    "miss tensors, as far as the system and memory cgroups leave enough";

/// The help on --reduce.
inline std::string reduce_help() {
  std::string text = "Reductions, comma-separated, such as 'mean,histogram:64:-4:4':";
  for (const auto& entry : reductions::catalogue()) text += " " + entry.usage;
  return text +
         "; by(NAME[:N], …) has them for each key, where(NAME, …) for the rows that are true, "
         "cka(NAME), cross_covariance(NAME) and joint(NAME, …) those of two tensors, "
         "every(N, …) and window(N, …) for some samples; default: keep every sample";
}

/// Reduces over all elements unless `over` names dimensions or `elementwise` is true.
inline reductions::Any make_reduction(const std::string& text, const std::vector<std::int64_t>& over,
                                      bool elementwise) {
  quantization::enable_formats();
  reductions::ParseOptions rows;
  if (!over.empty()) {
    rows.over(over);
  } else if (!elementwise) {
    rows.over_all(true);
  }
  return reductions::parse(text, rows);
}

}  // namespace torchtap::tools
