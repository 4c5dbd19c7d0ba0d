#pragma once

/// A value in an open `.pt` file.

#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/storage/detail/disk.hpp>
#include <vector>

namespace torchtap::storage::detail {

/// Writes `value`, which `check_value` has passed. Does not close the file.
///
/// `state` goes into records of its own ("torchtap/0/recipe", "torchtap/0/bytes", …), which Python does not
/// look at.
void write_value(OutputFile& file, const core::Value& value, const std::vector<core::SavedSink>& state = {});
/// Throws `c10::ValueError` unless `file` holds a value.
core::Value read_value(const InputFile& file, bool mmap = false);
/// The state in `file`; nothing if there is none.
std::vector<core::SavedSink> read_state(const InputFile& file);

}  // namespace torchtap::storage::detail
