#pragma once

/// Writing a recording: one `.pt` file for each module that was recorded, and a manifest that says which is
/// which.

#include <cstddef>
#include <functional>
#include <string>
#include <torchtap/storage/entry.hpp>
#include <torchtap/storage/file.hpp>
#include <vector>

namespace torchtap::storage {

/// Writes `entries` as a recording to `directory`, whole or not at all; entry i goes to `i.pt`. The number
/// says nothing more: which module a file is of stands in the manifest, under `path`.
///
/// An entry without samples stands in the manifest and has no file. `directory` may be missing (with
/// `SaveOptions::mkdir`, which also makes its parents), empty, or, with `SaveOptions::overwrite`, an older
/// recording, which is replaced as a whole. A directory that holds anything but a recording is never touched.
///
/// The files are written to a temporary directory beside it (".NAME.torchtap-new-…") and put in place in one
/// step, when all of them are on the disk (unless `SaveOptions::sync` is false), so that a reader, or a
/// process killed at any moment, or a power failure, leaves the old recording or the new one. The step is
/// rename(2), or renameat2(RENAME_EXCHANGE) where an old recording is replaced. File systems without the
/// latter get two renames; should the process be killed between them, the old recording stands under
/// ".NAME.torchtap-old", where `load` finds it and the next save puts it back. Temporary directories of
/// killed processes are removed by the next save to the same place.
///
/// Throws `c10::ValueError` for a place that may not be written to as said above, for negative `samples`, for
/// an entry with 0 samples and a value, and for names that are not UTF-8; for values as `save_value` does;
/// and `c10::Error` naming file and reason if the system fails (disk full, no permission). The old recording
/// is then untouched, no file is left behind, and `entries` may be saved elsewhere.
void save(const std::string& directory, const std::vector<Entry>& entries, const SaveOptions& options = {});

/// The same for `count` entries, each made when it is its turn and released once it is written, so that a
/// recording may be larger than memory. An exception from `make` leaves nothing behind.
void save(const std::string& directory, std::size_t count,
          const std::function<Entry(std::size_t index)>& make, const SaveOptions& options = {});

}  // namespace torchtap::storage
