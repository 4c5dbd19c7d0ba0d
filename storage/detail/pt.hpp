#pragma once

/// Writes and reads the value of an open `.pt` file.

#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::storage::detail {

/// Writes `value`, which must have passed `check_value`. Does not close the file.
///
/// `state` goes into separate records ("torchtap/0/recipe", "torchtap/0/bytes", …), which Python ignores.
void write_value(base::OutputFile& file, const core::Value& value,
                 const std::vector<core::SavedSink>& state = {});
/// The names and contents of the records with the format of a file.
const std::vector<std::pair<std::string, std::string>>& fixed_records();
/// Throws `c10::ValueError` unless `file` holds a value, and `NewerFormat` if a newer torchtap wrote it.
core::Value read_value(const base::InputFile& file, const LoadOptions& options = {});
/// The state in `file`; nothing if there is none.
std::vector<core::SavedSink> read_state(const base::InputFile& file);

}  // namespace torchtap::storage::detail
