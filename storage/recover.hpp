#pragma once

/// Recovers a spooled recording (`spool.hpp`) after a crash.

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::storage {

/// How to recover a recording (`recover`).
class TORCHTAP_API RecoverOptions {
  /// Repair the recording, so that the directory holds a finished one. Otherwise only report.
  TORCH_ARG(bool, repair) = true;
  /// Read every shard and compare its checksums. Otherwise only its size is compared.
  TORCH_ARG(bool, verify) = true;
};

/// The result of `recover`. After a repair, the recording has these numbers.
struct TORCHTAP_API Recovery {
  /// Entries of modules: without what is beside the rows of a dump.
  std::int64_t entries = 0;
  /// Complete shards.
  std::int64_t shards = 0;
  /// Complete samples of these.
  std::int64_t samples = 0;
  /// The size of the shards in bytes.
  std::int64_t bytes = 0;
  /// How many of `samples` are from unfinished shards: complete by their size, but without a checksum.
  std::int64_t salvaged = 0;
  /// One sentence for each missing or damaged part; empty if all data that reached the disk is there.
  std::vector<std::string> missing;
  /// Whether the recording was finished already.
  bool finished = false;
};

/// Finishes a spooled recording that a crash or a power failure cut off: writes the manifest, completes
/// unfinished shards with their complete samples, and leaves out damaged files. Damaged and useless files
/// stay in the directory, renamed to `….lost`.
///
/// Throws `c10::ValueError` if there is no recording at `directory`, or if another process is writing it.
TORCHTAP_API Recovery recover(const std::string& directory, const RecoverOptions& options = {});

}  // namespace torchtap::storage
