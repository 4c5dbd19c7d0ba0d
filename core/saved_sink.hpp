#pragma once

#include <string>
#include <torchtap/core/api.hpp>

namespace torchtap::core {

/// A reduction and what it has seen, as text and bytes: what recordings keep beside its results, so that they
/// can be merged. Made by `save`, read by `reductions::restore`.
struct TORCHTAP_API SavedSink {
  std::string recipe;  ///< what it is made of: "Mean", "Series(Moments, Every(Max))"
  std::string bytes;   ///< its configuration and state, as cereal writes them
};

}  // namespace torchtap::core
