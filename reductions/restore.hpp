#pragma once

#include <memory>
#include <torchtap/core/api.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/sink.hpp>

namespace torchtap::reductions {

/// The reduction that `core::save` was given, with all that it had seen, whatever program that was in.
///
/// For what this library has, combinations included (all but `map`, whose callable no file holds). What comes
/// back has the same results, and merges with whatever was restored from the same recipe. Throws
/// `c10::ValueError` if the recipe names something else, or if the bytes do not belong to it.
TORCHTAP_API std::unique_ptr<core::Sink> restore(const core::SavedSink& saved);

}  // namespace torchtap::reductions
