#pragma once

/// The kernel of torchtap at once: hooks, selectors, reductions, recorders, files. Components (traces,
/// reports, streams, the explorer, ranks, exported models) have headers of their own, and so has
/// `torchtap::nn` (hooks/nn.hpp). A file that wants to compile fast includes just the headers it uses.

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/hooks.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/dtype.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/version.hpp>
