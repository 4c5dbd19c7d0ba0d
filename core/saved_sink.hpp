#pragma once

/// Defines the saved form of a reduction, which recordings keep beside its results.

#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

/// A reduction with its state, as text and bytes. Recordings keep it beside the results, so that they can be
/// merged. Made by `save`, read by `reductions::restore`.
struct TORCHTAP_API SavedSink {
  std::string recipe;  ///< the reduction's kind: "Mean", "Series(Moments, Every(Max))"
  std::string bytes;   ///< its configuration and state, as cereal writes them
};

}  // namespace torchtap::core
