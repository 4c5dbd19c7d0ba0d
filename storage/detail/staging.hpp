#pragma once

/// Files and folders that appear whole or not at all: written under temporary names beside their targets,
/// which become the real names in one step.

#include <string>
#include <vector>

#include <torchtap/core/api.hpp>
#include <torchtap/storage/detail/disk.hpp>

namespace torchtap::storage::detail {

/// Tells whether a file of this name in a folder belongs to what is saved there, and may be removed with it.
using Owned = bool (*)(const std::string& name);

/// Where something is to be saved: an existing parent folder without symbolic links, and a name in it.
struct Target {
  std::string parent;
  std::string name;
  std::vector<std::string> created;  // folders made for it, outermost first

  std::string path() const;
  /// What the temporary names of this target start with. They lie beside it, so that renaming is one step.
  std::string temporary_prefix() const;
  /// Where the old folder waits while the system, having no atomic exchange, puts the new one in place.
  std::string backup_path() const;
  /// Removes again what `resolve` made.
  void undo() const noexcept;
};

/// Finds the target of `path`, following symbolic links; with `mkdir`, missing parents are made. Throws
/// `c10::ValueError` if there is no parent and `mkdir` is false.
Target resolve(const std::string& call, const std::string& path, bool mkdir);

/// A file or folder under a temporary name beside its target. Removed on destruction unless it was put in
/// place.
///
/// It is locked (flock) as long as its owner lives, and so tells apart the leftovers of a killed process from
/// the work of a living one, on any machine that shares the folder and its locks.
class Staging {
 public:
  /// A file.
  Staging(std::string call, const Target& target);
  /// A folder. `ours` tells the names of the files that may be removed, with the folder or with the one that
  /// it replaces.
  Staging(std::string call, const Target& target, Owned ours);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  const std::string& path() const noexcept { return path_; }
  /// The open file or folder.
  int fd() const noexcept { return fd_.get(); }
  /// A second descriptor of the open file, for an `OutputFile`.
  Descriptor duplicate() const;
  /// Creates a file in the staged folder.
  OutputFile create(const std::string& name) const;

  /// Makes this the target, in one step. Where something stands already: replaced if `overwrite` (an empty
  /// folder always), otherwise a `c10::ValueError`. With `sync`, waits for the disk.
  ///
  /// A folder is exchanged with renameat2(RENAME_EXCHANGE) if `exchange` and if the system can; otherwise the
  /// old one is moved to `Target::backup_path` for a moment, where `recover` and `load` look for it.
  void put(bool overwrite, bool sync, bool exchange = true);

 private:
  void create();
  void put_file(bool overwrite);
  void put_directory(bool overwrite, bool exchange);

  std::string call_;
  Target target_;
  Owned ours_ = nullptr;  // of a folder
  std::string path_;
  Descriptor fd_;
  bool placed_ = false;
};

/// Throws `c10::ValueError` unless a file may be put at `path`: nothing stands there, or a regular file and
/// `overwrite`.
void check_replaceable(const std::string& call, const std::string& path, bool overwrite);
/// Removes the files in a folder that are `ours`; anything else in it stays, and the folder with it.
TORCHTAP_API void remove_folder(const std::string& path, Owned ours) noexcept;
/// Moves an old folder back that a save, killed between two renames, left at `Target::backup_path`. `marker`
/// is a file that a whole folder has.
void put_back(const Target& target, Owned ours, const std::string& marker) noexcept;
/// Removes what killed saves to this target left behind: files, and of folders what is `ours`.
void sweep(const Target& target, Owned ours = nullptr) noexcept;

}  // namespace torchtap::storage::detail
