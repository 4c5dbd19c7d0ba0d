#pragma once

/// Reads values from a Python pickle. Only a short list of functions and classes is accepted, and no code in
/// a file is run.

#include <torchtap/base/disk.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/storage/detail/zip.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::storage::detail {

/// The value in the record "data.pkl" of `records`; its tensors are read from the records "data/…", or with
/// `LoadOptions::mmap` lie in mapped memory. `file` is for messages. Throws `c10::ValueError` if the record
/// is damaged or holds anything but a value.
core::Value unpickle(const base::InputFile& file, const ZipReader& records, const LoadOptions& options);

}  // namespace torchtap::storage::detail
