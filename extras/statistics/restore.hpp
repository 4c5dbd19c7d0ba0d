#pragma once

/// Restores saved reductions.

#include <torchtap/base/api.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/reductions/any.hpp>

namespace torchtap::reductions {

/// Restores a reduction saved by `core::save`, with its state, in any program.
///
/// A recorder takes the returned reduction, and continues from there. Supports all reductions and combinators
/// of this library except `map`, whose callable cannot be saved. The restored reduction has the same results
/// and merges with any other restored from the same recipe. Throws `c10::ValueError` if the recipe is unknown
/// or the bytes do not match it.
TORCHTAP_API Any restore(const core::SavedSink& saved);

}  // namespace torchtap::reductions
