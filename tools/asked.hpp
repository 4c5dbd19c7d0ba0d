#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/named.hpp>
#include <vector>

/// What is recorded, as it is asked for in words. A header alone: also for what is loaded into programs.
namespace torchtap::tools {

inline const std::vector<std::string>& recorder_names() {
  static const std::vector<std::string> names{"pre", "input", "output", "grad-input", "grad-output"};
  return names;
}

inline std::unique_ptr<recorders::Recorder> make_recorder(const std::string& what,
                                                          recorders::Options options) {
  if (what == "pre") return std::make_unique<recorders::ForwardPre>(std::move(options));
  if (what == "input") return std::make_unique<recorders::ForwardInput>(std::move(options));
  if (what == "output") return std::make_unique<recorders::ForwardOutput>(std::move(options));
  if (what == "grad-input") return std::make_unique<recorders::BackwardInput>(std::move(options));
  if (what == "grad-output") return std::make_unique<recorders::BackwardOutput>(std::move(options));
  TORCH_CHECK_VALUE(false, "\"", what, "\" cannot be recorded.");
}

/// Reduces over all elements unless `over` names dimensions or `elementwise` is said.
inline reductions::Named make_reduction(const std::string& text, const std::vector<std::int64_t>& over,
                                        bool elementwise) {
  reductions::NamedOptions rows;
  if (!over.empty()) {
    rows.over(over);
  } else if (!elementwise) {
    rows.over_all(true);
  }
  return reductions::Named(text, rows);
}

}  // namespace torchtap::tools
