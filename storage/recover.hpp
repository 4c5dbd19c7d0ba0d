#pragma once

/// Finding and finishing what a crashed program left of a recording that it spooled (`spool.hpp`).

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::storage {

/// How to recover a recording (`recover`).
class RecoverOptions {
  /// Repair what is found, so that the directory holds a finished recording. Otherwise only look.
  TORCH_ARG(bool, repair) = true;
  /// Read every shard and compare its checksums. Otherwise only its size is compared.
  TORCH_ARG(bool, verify) = true;
};

/// What `recover` found.
struct Recovery {
  /// What is there and whole. After a repair, that is the recording.
  std::int64_t entries = 0;
  std::int64_t shards = 0;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
  /// Samples from shards that were being filled, among those above: whole ones, but with no checksum to prove
  /// it.
  std::int64_t salvaged = 0;
  /// What is missing or damaged, a sentence each; empty for a recording that was finished, or of which all
  /// that reached the disk is there.
  std::vector<std::string> missing;
  /// Was it finished before, with nothing to do?
  bool finished = false;
};

/// Finds what a crashed program, or one that lost power, left of a recording that it spooled, and finishes
/// it: the manifest is written, shards that were being filled are completed as far as samples are whole, what
/// is damaged is left out. Damaged and useless files stay in the directory, renamed to `….lost`.
///
/// Throws `c10::ValueError` if there is no recording at `directory`, or if it is being written by another
/// process.
Recovery recover(const std::string& directory, const RecoverOptions& options = {});

}  // namespace torchtap::storage
