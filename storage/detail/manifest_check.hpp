#pragma once

/// Finds claims of a manifest that contradict each other or the files.

#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/detail/manifest.hpp>

namespace torchtap::storage::detail {

/// Throws `c10::ValueError` for a manifest whose fields contradict each other, or that names files outside of
/// the recording. Reads no other files. With `damage`, errors in an entry are added there instead, and the
/// entry loses its file and shards.
void check_manifest(const base::InputFile& file, Manifest& manifest, std::vector<std::string>* damage);
/// Throws `c10::ValueError` unless the value of `file` matches the manifest.
void check_value(const base::InputFile& file, const Description& part, const core::Value& value);
/// Describes the samples of a shard, without `file`, `slot` and `bytes`. Throws `c10::ValueError` if `value`
/// holds no samples.
ShardInfo describe_shard(const base::InputFile& file, const core::Value& value);
/// Throws `c10::ValueError` unless the value of a shard matches the manifest.
void check_shard(const base::InputFile& file, const ShardInfo& said, const core::Value& value);

}  // namespace torchtap::storage::detail
