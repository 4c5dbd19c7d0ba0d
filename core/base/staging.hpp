#pragma once

/// Saves files and folders whole or not at all: they are written under temporary names beside their targets,
/// and renamed in one step.

#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/disk.hpp>

namespace torchtap::base {

/// Whether a file of this name belongs to the saved folder, and may be removed with it.
using Owned = bool (*)(const std::string& name);

/// The place of a file that is saved: an existing parent folder without symbolic links, and a name in it.
struct TORCHTAP_API Target {
  std::string parent;
  std::string name;
  std::vector<std::string> created;  // folders made for it, outermost first

  std::string path() const;
  /// The prefix of the temporary names of this target. They are in the same folder, so that renaming is one
  /// step.
  std::string temporary_prefix() const;
  /// The place of the old folder while the new one is put in place, if the system has no atomic exchange.
  std::string backup_path() const;
  /// Removes the folders that `resolve` made.
  void undo() const noexcept;
};

/// Finds the target of `path`, following symbolic links; with `mkdir`, missing parents are made. Throws
/// `c10::ValueError` if there is no parent and `mkdir` is false.
TORCHTAP_API Target resolve(const std::string& call, const std::string& path, bool mkdir);

/// A file or folder under a temporary name beside its target. Removed on destruction unless it was put in
/// place.
///
/// Putting it in place has two steps, `place` and `settle`. Each may fail, knows what is done already, and
/// may be called again.
///
/// It is locked (flock) until it is destroyed, so that the leftovers of killed processes can be told from
/// saves in progress, on all machines that share the folder and its locks.
class TORCHTAP_API Staging {
 public:
  /// Makes a file.
  Staging(std::string call, const Target& target);
  /// Makes a folder. `ours` says which files may be removed with it, or with the folder that it replaces.
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

  /// Renames this to the target, in one step, unless that is done. Replaces an existing target if `overwrite`
  /// (an empty folder always), otherwise throws `c10::ValueError`. With `sync`, a folder is on the disk
  /// first. If it throws, what was at the target is there still, or at `Target::backup_path`.
  ///
  /// A folder is exchanged with renameat2(RENAME_EXCHANGE) if the system can; otherwise the old one is moved
  /// to `Target::backup_path` for a moment, where `put_back` and `load` look for it.
  void place(bool overwrite, bool sync);
  /// With `sync`, waits until the new name is on the disk; then removes what was replaced. If it throws, the
  /// message says that this is in place.
  void settle(bool sync);
  /// `place` and `settle`.
  void put(bool overwrite, bool sync);
  /// Leaves this where it is, under its temporary name, until `sweep` removes it.
  void leave() noexcept { stays_ = true; }

 private:
  void create();
  void place_file(bool overwrite);
  void place_directory(bool overwrite);
  void move_aside(const std::string& to);

  std::string call_;
  Target target_;
  Owned ours_ = nullptr;  // of a folder
  std::string path_;
  Descriptor fd_;
  bool placed_ = false;
  bool stays_ = false;
  std::string old_;  // where the folder is that was at the target
};

/// Throws `c10::ValueError` unless a file may be put at `path`: nothing is there, or a regular file and
/// `overwrite` is true.
void check_replaceable(const std::string& call, const std::string& path, bool overwrite);
/// Throws `c10::ValueError` if the folder `path` cannot be exchanged for another one, because a process or a
/// file system is in it: it is the current directory or a mount point.
void check_exchangeable(const std::string& call, const std::string& path);
/// Removes the files in a folder, and in the folders below, that are `ours`; anything else stays, and its
/// folder with it.
TORCHTAP_API void remove_folder(const std::string& path, Owned ours) noexcept;
/// Moves back the old folder that a save left at `Target::backup_path` when it was killed between two
/// renames, or removes it if the target has the file `marker`, which complete folders have.
void put_back(const Target& target, Owned ours, const std::string& marker) noexcept;
/// Removes the temporary files of killed saves to this target, and the files in temporary folders that are
/// `ours`.
TORCHTAP_API void sweep(const Target& target, Owned ours = nullptr) noexcept;

}  // namespace torchtap::base
