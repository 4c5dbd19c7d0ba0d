#pragma once

/// Writes a file of any content whole or not at all.

#include <functional>
#include <iosfwd>
#include <string>

namespace torchtap::storage::detail {

/// Writes to the file `path` what `write` puts into its stream; an older file is replaced in one step.
///
/// The bytes are written to a temporary file beside `path` (".NAME.torchtap-new-…"), which is renamed when
/// all of them are on the disk: after a crash or a power failure `path` is the old file or the new one. The
/// next call for the same path removes the temporary files of killed processes. `call` begins messages.
///
/// Throws `c10::ValueError` if the folder of `path` does not exist or if `path` is no regular file,
/// `c10::Error` naming file and reason if the system fails (disk full, no permission), and what `write`
/// throws. On error the old file is unchanged and no temporary file is left.
void write_file(const std::string& call, const std::string& path,
                const std::function<void(std::ostream&)>& write);

}  // namespace torchtap::storage::detail
