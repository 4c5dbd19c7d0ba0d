// Recovers a spooled recording: locks it, so that no spool writes to it meanwhile.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/recoverer.hpp>
#include <torchtap/storage/recover.hpp>

namespace torchtap::storage {

Recovery recover(const std::string& directory, const RecoverOptions& options) {
  const base::Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    base::bad_file("recover", directory,
                   errno == ENOENT ? "there is no such directory"
                   : errno == ENOTDIR
                       ? "it is a file, not the directory of a recording"
                       : "the directory cannot be opened: " + std::generic_category().message(errno));
  }
  const base::Descriptor journal(
      ::openat(fd.get(), detail::kJournal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (journal.valid() && ::flock(journal.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) base::io_error("recover", "lock", directory + "/" + detail::kJournal, errno);
    TORCH_CHECK_VALUE(false, "recover: \"", directory,
                      "\" is being written to by a recorder that lives; recover it when that one has ended.");
  }
  Recovery result = detail::recover_locked(directory, fd.get(), options);
  if (options.repair() && journal.valid()) {
    if (::unlinkat(fd.get(), detail::kJournal, 0) != 0) {
      base::io_error("recover", "remove", directory + "/" + detail::kJournal, errno);
    }
    ::fsync(fd.get());
  }
  return result;
}

}  // namespace torchtap::storage
