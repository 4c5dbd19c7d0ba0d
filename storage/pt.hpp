#pragma once

/// A value in an open `.pt` file. Not part of the interface: see `file.hpp`.

#include <torchtap/core/value.hpp>
#include <torchtap/storage/disk.hpp>

namespace torchtap::storage::detail {

/// Writes `value`, which `check_value` has passed. Does not close the file.
void write_value(OutputFile& file, const core::Value& value);
/// Throws `c10::ValueError` unless `file` holds a value.
core::Value read_value(const InputFile& file, bool mmap = false);

}  // namespace torchtap::storage::detail
