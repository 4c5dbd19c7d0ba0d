#pragma once

/// Writes a recording: one `.pt` file for each module that was recorded, and a manifest that says which is
/// which.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::storage {

/// Writes `entries` as a recording to `directory`, whole or not at all; entry i goes to `i.pt`. The manifest
/// says which module a file belongs to, under `path`.
///
/// An entry without samples is in the manifest and has no file. `directory` may be missing (with
/// `SaveOptions::mkdir`, which also makes its parents), empty, or, with `SaveOptions::overwrite`, an older
/// recording, which is replaced as a whole. A directory that holds anything else is never changed.
///
/// The files are written to a temporary directory beside it (".NAME.torchtap-new-…"). When all of them are on
/// the disk (unless `SaveOptions::sync` is false), one rename puts them in place, so that readers find the
/// old recording or the new one, also after a killed process or a power failure. The rename is rename(2), or
/// renameat2(RENAME_EXCHANGE) if an old recording is replaced. File systems without the latter need two
/// renames. If the process is killed between them, the old recording is at ".NAME.torchtap-old", where `load`
/// finds it and the next save puts it back. The next save to the same place also removes temporary
/// directories of killed processes.
///
/// Throws `c10::ValueError` if `directory` may not be written to (see above), for negative `samples`, for an
/// entry with 0 samples and a value, and for names that are not UTF-8; for values as `save_value` does; and
/// `c10::Error` naming file and reason if the system fails (disk full, no permission). On error the old
/// recording is unchanged, no file is left, and `entries` may be saved elsewhere; unless the message says
/// that the new recording "is in place": then only the wait for the disk has failed.
TORCHTAP_API void save(const std::string& directory, const std::vector<Entry>& entries,
                       const SaveOptions& options = {});

/// Saves `count` entries, which `make` returns one at a time, so that a recording may be larger than memory.
/// An exception from `make` leaves no file.
TORCHTAP_API void save(const std::string& directory, std::size_t count,
                       const std::function<Entry(std::size_t index)>& make, const SaveOptions& options = {});

}  // namespace torchtap::storage
