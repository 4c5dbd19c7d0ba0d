#pragma once

/// Waits for the disk once for many files.

#include <cstddef>
#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/staging.hpp>

namespace torchtap::storage::detail {

/// Files that were written and are not on the disk yet.
///
/// The system writes them while the next ones are made. `wait` syncs all of them together, so that one flush
/// of the disk's cache serves many. They stay open until then, because write errors are reported through the
/// descriptor that the bytes were written to.
class SyncQueue {
 public:
  /// `call` is for messages. Without `sync`, files are closed at once.
  SyncQueue(std::string call, bool sync);

  /// Creates a file in the staged folder. If no more files can be opened, calls `wait` first.
  base::OutputFile create(const base::Staging& staging, const std::string& name);
  /// Takes over a file that is completely written. Waits for the disk if many files are open.
  void add(base::OutputFile file);
  /// Returns when all files are on the disk. Throws `c10::Error` that names the file that could not be
  /// written; the files are closed then, too.
  void wait();

 private:
  struct Waiting {
    std::string path;
    base::Descriptor fd;
  };

  std::string call_;
  bool sync_;
  std::size_t most_;
  std::vector<Waiting> waiting_;
};

}  // namespace torchtap::storage::detail
