#pragma once

/// A file of any content that appears whole or not at all.

#include <functional>
#include <iosfwd>
#include <string>

namespace torchtap::storage::detail {

/// Writes to the file `path` what `write` puts into its stream; an older file is replaced in one step.
///
/// The bytes go to a temporary name beside `path` (".NAME.torchtap-new-…"), which is renamed when all of them
/// are on the disk: after a crash or a power failure the old file is there or the new one. What a killed
/// process left under a temporary name the next call for the same path removes. `call` begins messages.
///
/// Throws `c10::ValueError` if the folder of `path` does not exist or if `path` is no regular file,
/// `c10::Error` naming file and reason if the system fails (disk full, no permission), and what `write`
/// throws. The old file is then untouched and nothing is left behind.
void write_file(const std::string& call, const std::string& path,
                const std::function<void(std::ostream&)>& write);

}  // namespace torchtap::storage::detail
