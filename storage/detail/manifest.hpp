#pragma once

/// `manifest.json`: docs/format.md has its fields.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/storage/detail/disk.hpp>
#include <torchtap/storage/detail/entry_info.hpp>

namespace torchtap::storage::detail {

struct Manifest {
  std::int64_t schema = 0;
  std::string library;
  std::string created;
  std::int64_t count = 0;
  std::vector<Description> entries;
};

std::string to_json(Manifest manifest);
/// Throws `c10::ValueError` for what is no manifest, `NewerFormat` for one of a newer schema.
Manifest from_json(const InputFile& file);

}  // namespace torchtap::storage::detail
