#pragma once

/// Writes a file of any content whole or not at all.

#include <functional>
#include <iosfwd>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Writes to `path` what `write` puts into its stream; an older file is replaced in one step.
///
/// The bytes are written to a temporary file beside the file that `path` leads to (".NAME.torchtap-new-…"),
/// which is renamed when all of them are on the disk: after a crash or a power failure the file is the old
/// one or the new one. The next call for the same path removes the temporary files of killed processes.
/// Without `sync` it does not wait for the disk, a power failure may leave less, and nothing is removed.
/// `call` begins messages.
///
/// A pipe, a device, or a descriptor of a process (/dev/stdout) is written to as it is, and stays what it is;
/// see `written_in_place`. A reader that leaves is an error here, and no signal.
///
/// Throws `c10::ValueError` if the folder of `path` does not exist or if `path` is a folder, `c10::Error`
/// naming file and reason if the system fails (disk full, no permission), and the exceptions of `write`. On
/// error the old file is unchanged and no temporary file is left; unless the message says that the new file
/// "is in place": then only the wait for the disk has failed.
TORCHTAP_API void write_file(const std::string& call, const std::string& path,
                             const std::function<void(std::ostream&)>& write, bool sync = true);

/// Whether `path` leads to a target that is written to and never replaced: a pipe, a device, a descriptor.
TORCHTAP_API bool written_in_place(const std::string& path);

}  // namespace torchtap::base
