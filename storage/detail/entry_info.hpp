#pragma once

/// What manifests and journals say of an entry and of its files.

#include <ATen/core/Tensor.h>
#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/storage/detail/shape_summary.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::storage::detail {

/// A file with samples of one entry.
struct ShardInfo {
  std::string file;
  std::int64_t slot = -1;  // -1 where one tensor a sample is recorded, as in the file
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
  std::string holds;  // "tensor" (stacked) or "list"
  ShapeSummary form;  // of a sample

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(file), CEREAL_NVP(slot), CEREAL_NVP(samples), CEREAL_NVP(bytes), CEREAL_NVP(holds),
            cereal::make_nvp("dtype", form.dtype), cereal::make_nvp("shape", form.shape),
            cereal::make_nvp("ragged", form.ragged));
  }
};

/// An entry of a spooled recording and its shards, in order.
struct SpooledEntry : EntryId {
  std::vector<ShardInfo> shards;
  std::int64_t dropped = 0;

  std::int64_t samples() const noexcept;
};

/// An entry as the manifest has it.
struct Description : EntryId {
  std::int64_t index = 0;
  std::int64_t samples = 0;
  std::string reduction;
  std::string holds;
  std::int64_t number = 0;
  std::vector<std::string> keys;
  ShapeSummary form;
  std::string file;
  std::int64_t bytes = 0;
  std::vector<ShardInfo> shards;  // instead of a file
  std::int64_t dropped = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(index), CEREAL_NVP(path), CEREAL_NVP(aliases), CEREAL_NVP(type), CEREAL_NVP(kind),
            CEREAL_NVP(samples), CEREAL_NVP(reduction), CEREAL_NVP(holds), CEREAL_NVP(number),
            CEREAL_NVP(keys), cereal::make_nvp("dtype", form.dtype), cereal::make_nvp("shape", form.shape),
            cereal::make_nvp("ragged", form.ragged), CEREAL_NVP(file), CEREAL_NVP(bytes));
    if constexpr (Archive::is_loading::value) {
      const char* next = archive.getNodeName();
      if (next == nullptr || std::string(next) != "shards") return;
    } else if (shards.empty()) {
      return;
    }
    archive(CEREAL_NVP(shards), CEREAL_NVP(dropped));
  }

  /// As an entry with its shards alone; a file of its own is left out.
  SpooledEntry spooled() const;
};

/// What a file has to hold to be what `entry` says. `bytes` and `file` are left out.
Description describe(const Entry& entry, std::size_t index);
/// The same of all shards together. Numbers that are too large for their type stay at its end.
Description describe(const SpooledEntry& entry, std::size_t index);

/// "tensor", "list", "dict", "text" or "none".
const char* holds(const core::Value& value);
/// Nothing, or a list or dict of nothing.
bool is_empty(const core::Value& value);
/// Calls `visit` with every tensor in `value`.
void each_tensor(const core::Value& value, const std::function<void(const at::Tensor&)>& visit);
/// "entry 3 ("layer1.conv")".
std::string named(std::size_t index, const std::string& path);

}  // namespace torchtap::storage::detail
