#pragma once

/// Writes and reads `manifest.json`; docs/format.md specifies its fields.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/detail/entry_info.hpp>

namespace torchtap::storage::detail {

struct Manifest {
  std::int64_t format = 0;
  std::string library;
  std::string created;
  std::int64_t count = 0;
  std::vector<Description> entries;
};

/// `format` and `library` are filled in.
std::string to_json(Manifest manifest);
/// Throws `c10::ValueError` if `file` is not a manifest, `NewerFormat` for one of a newer format.
Manifest from_json(const base::InputFile& file);

}  // namespace torchtap::storage::detail
