#pragma once

/// The format numbers of files, and the error for a file of a newer format. docs/format.md specifies them.

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include <torchtap/base/disk.hpp>

namespace torchtap::storage::detail {

/// Thrown for a file that a newer torchtap wrote. Unlike a damaged file, it must not be repaired.
class NewerFormat : public c10::ValueError {
 public:
  using ValueError::ValueError;
};

/// Throws `NewerFormat` if the format number `found` of `file` is larger than `known`, and `c10::ValueError`
/// if it is not positive.
void check_format(const base::InputFile& file, std::int64_t found, std::int64_t known);

/// The version of this library: "0.1.0".
const char* library_version() noexcept;

}  // namespace torchtap::storage::detail
