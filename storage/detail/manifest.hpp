#pragma once

/// What `manifest.json` says: `recording.hpp` has the format.

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/recording.hpp>
#include <vector>

namespace torchtap::storage::detail {

/// An entry as the manifest has it.
struct Description {
  std::int64_t index = 0;
  std::string path;
  std::vector<std::string> aliases;
  std::string type;
  std::string kind;
  std::int64_t samples = 0;
  std::string reduction;
  std::string holds;
  std::int64_t number = 0;
  std::vector<std::string> keys;
  std::string dtype;
  std::vector<std::int64_t> shape;
  bool ragged = false;
  std::string file;
  std::int64_t bytes = 0;
  std::vector<ShardInfo> shards;  // instead of a file
  std::int64_t dropped = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(index), CEREAL_NVP(path), CEREAL_NVP(aliases), CEREAL_NVP(type), CEREAL_NVP(kind),
            CEREAL_NVP(samples), CEREAL_NVP(reduction), CEREAL_NVP(holds), CEREAL_NVP(number),
            CEREAL_NVP(keys), CEREAL_NVP(dtype), CEREAL_NVP(shape), CEREAL_NVP(ragged), CEREAL_NVP(file),
            CEREAL_NVP(bytes));
    if constexpr (Archive::is_loading::value) {
      const char* next = archive.getNodeName();
      if (next == nullptr || std::string(next) != "shards") return;
    } else if (shards.empty()) {
      return;
    }
    archive(CEREAL_NVP(shards), CEREAL_NVP(dropped));
  }
};

struct Manifest {
  std::int64_t schema = 0;
  std::string library;
  std::string created;
  std::int64_t count = 0;
  std::vector<Description> entries;
};

/// What a file has to hold to be what `entry` says. `bytes` and `file` are left out.
Description describe(const Entry& entry, std::size_t index);
/// The same of all shards together. Numbers that are too large for their type stay at its end.
Description describe(const SpooledEntry& entry, std::size_t index);
/// "tensor", "list", "dict" or "none".
const char* holds(const core::Value& value);
/// Nothing, or a list or dict of nothing.
bool is_empty(const core::Value& value);
/// "entry 3 ("layer1.conv")".
std::string named(std::size_t index, const std::string& path);

std::string to_json(Manifest manifest);
/// Throws `c10::ValueError` for what is no manifest, or one of a newer schema.
Manifest from_json(const InputFile& file);

/// Throws `c10::ValueError` for a manifest whose fields contradict each other, or that names files outside of
/// the recording: all that can be known without the files. With `damage`, what is wrong with an entry goes
/// there instead, and the entry loses its file and shards.
void check_manifest(const InputFile& file, Manifest& manifest, std::vector<std::string>* damage);
/// Throws `c10::ValueError` unless the value of `file` is what the manifest says of it.
void check_value(const InputFile& file, const Description& part, const core::Value& value);
/// What a shard holds; `file`, `slot` and `bytes` are left out. Throws `c10::ValueError` if `value` holds no
/// samples.
ShardInfo describe_shard(const InputFile& file, const core::Value& value);
/// Throws `c10::ValueError` unless the value of a shard is what the manifest says of it.
void check_shard(const InputFile& file, const ShardInfo& said, const core::Value& value);

}  // namespace torchtap::storage::detail
