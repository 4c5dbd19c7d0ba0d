#pragma once

/// Values read from Python's pickle, and nothing else of pickle: no file can name a function or class outside
/// a short list, and nothing in it is ever run.

#include <torchtap/core/value.hpp>
#include <torchtap/storage/detail/disk.hpp>
#include <torchtap/storage/detail/zip.hpp>

namespace torchtap::storage::detail {

/// The value in the record "data.pkl" of `records`; its tensors are read from the records "data/…", or with
/// `mmap` lie in mapped memory. `file` is for messages. Throws `c10::ValueError` for whatever is not a value.
core::Value unpickle(const InputFile& file, const ZipReader& records, bool mmap);

}  // namespace torchtap::storage::detail
