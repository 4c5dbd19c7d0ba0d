#pragma once

/// The description of an entry and its files in manifests and journals.

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
  std::int64_t slot = -1;  // -1 if one tensor per sample is recorded, as in the file
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
  core::NotRecorded not_recorded;
  std::string note;  // as in `Entry`

  std::int64_t samples() const noexcept;
};

/// An entry with the fields of the manifest.
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
  std::string note;                // absent if empty
  std::vector<ShardInfo> shards;   // instead of a file
  core::NotRecorded not_recorded;  // absent if empty

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(index), CEREAL_NVP(path), CEREAL_NVP(aliases), CEREAL_NVP(type), CEREAL_NVP(kind),
            CEREAL_NVP(samples), CEREAL_NVP(reduction), CEREAL_NVP(holds), CEREAL_NVP(number),
            CEREAL_NVP(keys), cereal::make_nvp("dtype", form.dtype), cereal::make_nvp("shape", form.shape),
            cereal::make_nvp("ragged", form.ragged), CEREAL_NVP(file), CEREAL_NVP(bytes));
    const auto present = [&]([[maybe_unused]] const char* name, [[maybe_unused]] bool filled) {
      if constexpr (Archive::is_loading::value) {
        const char* next = archive.getNodeName();
        return next != nullptr && std::string(next) == name;
      } else {
        return filled;
      }
    };
    if (present("note", !note.empty())) archive(CEREAL_NVP(note));
    std::int64_t dropped = not_recorded.dropped;
    if (present("shards", !shards.empty())) archive(CEREAL_NVP(shards), CEREAL_NVP(dropped));
    not_recorded.dropped = dropped;  // where manifests had no other count
    if (present("not_recorded", !not_recorded.empty())) archive(CEREAL_NVP(not_recorded));
  }

  /// The entry with its shards, without `file`.
  SpooledEntry spooled() const;
};

/// Describes the value of `entry`, without `bytes` and `file`.
Description describe(const Entry& entry, std::size_t index);
/// Describes an entry as the sum of its shards. Sums saturate instead of overflowing.
Description describe(const SpooledEntry& entry, std::size_t index);

/// What a note of the manifest says beside `not_recorded`.
std::string words_beside(const core::NotRecorded& not_recorded, const std::string& note);
/// "tensor", "list", "dict", "text" or "none".
const char* holds(const core::Value& value);
/// Whether `value` is nothing, or an empty list or dict.
bool is_empty(const core::Value& value);
/// Calls `visit` with every tensor in `value`.
void each_tensor(const core::Value& value, const std::function<void(const at::Tensor&)>& visit);
/// "entry 3 ("layer1.conv")".
std::string named(std::size_t index, const std::string& path);

}  // namespace torchtap::storage::detail
