#pragma once

/// How bytes reach a disk and come back: files that report every failure, and temporary names that become the
/// real ones in one step.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torchtap::storage::detail {

/// Throws `c10::Error`: "`call`: cannot `verb` "`path`": No space left on device (errno 28)."
[[noreturn]] void io_error(const std::string& call, const std::string& verb, const std::string& path,
                           int error);
/// Throws `c10::ValueError`: "`call`: cannot read "`path`": `reason`."
[[noreturn]] void bad_file(const std::string& call, const std::string& path, const std::string& reason);

/// An open file descriptor, closed with its owner. Move-only.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  int release() noexcept;

 private:
  int fd_;
};

/// Writes all of it; `call` and `path` are for messages.
void write_at(const std::string& call, const std::string& path, int fd, std::uint64_t offset,
              const void* data, std::size_t size);

/// A file being written: buffered and counted. Every failure of the system is a `c10::Error` that names the
/// file; nothing happens on destruction but the closing.
class OutputFile {
 public:
  /// `path` is for messages.
  OutputFile(std::string call, std::string path, Descriptor fd);

  void write(const void* data, std::size_t size);
  /// Replaces bytes that were written before.
  void patch(std::uint64_t offset, const void* data, std::size_t size);
  /// The bytes written so far.
  std::uint64_t size() const noexcept { return flushed_ + buffer_.size(); }
  /// Writes what is buffered, waits for the disk if `sync`, closes.
  void close(bool sync);
  /// Writes what is buffered and hands the descriptor over, for who waits for the disk later.
  Descriptor finish();
  const std::string& path() const noexcept { return path_; }

 private:
  void flush();
  void write_through(const char* data, std::size_t size);

  std::string call_;
  std::string path_;
  Descriptor fd_;
  std::uint64_t flushed_ = 0;
  std::vector<char> buffer_;
};

/// A regular file being read at offsets that need not be trusted.
class InputFile {
 public:
  /// Throws `c10::ValueError` if `fd` is not a regular file.
  InputFile(std::string call, std::string path, Descriptor fd);
  /// Opens `path`. Throws `c10::ValueError` if there is none or if it is not a regular file.
  static InputFile open(const std::string& call, const std::string& path);
  /// Opens `name` in the folder `directory`, which no symbolic link may lead out of; `path` is for messages.
  static InputFile open_at(const std::string& call, int directory, const std::string& name,
                           const std::string& path);

  std::uint64_t size() const noexcept { return size_; }
  const std::string& call() const noexcept { return call_; }
  const std::string& path() const noexcept { return path_; }
  /// Reads exactly `size` bytes. Throws `c10::ValueError` if the file ends before.
  void read_at(std::uint64_t offset, void* data, std::size_t size) const;
  /// `size` bytes from `offset` on in memory: copied by the system when they are first touched, and again,
  /// privately, when they are written to. Throws `c10::ValueError` if the file ends before.
  std::shared_ptr<void> map(std::uint64_t offset, std::size_t size) const;
  /// All of it. Throws `c10::ValueError` if it is larger than `most`.
  std::string read_all(std::uint64_t most) const;
  /// Throws `c10::ValueError`: this file, for this reason.
  [[noreturn]] void bad(const std::string& reason) const;

 private:
  std::string call_;
  std::string path_;
  Descriptor fd_;
  std::uint64_t size_ = 0;
};

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
  enum class Kind { file, directory };
  Staging(std::string call, const Target& target, Kind kind);
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
  void put_file(bool overwrite);
  void put_directory(bool overwrite, bool exchange);

  std::string call_;
  Target target_;
  Kind kind_;
  std::string path_;
  Descriptor fd_;
  bool placed_ = false;
};

/// Throws `c10::ValueError` unless a file may be put at `path`: nothing stands there, or a regular file and
/// `overwrite`.
void check_replaceable(const std::string& call, const std::string& path, bool overwrite);
/// Is `name` one that a recording gives its files: "manifest.json", "0.pt", "1.pt" …, and of a spooled one
/// "journal.jsonl", "0-0.pt", "0-1.part", "1.0-0.pt" …?
bool is_recording_file(const std::string& name);
/// The names in a folder. Throws `c10::Error` if it cannot be listed.
std::vector<std::string> list(const std::string& call, const std::string& path);
/// Does a living process write to the recording in this folder sample by sample?
bool is_spooling(const std::string& path) noexcept;
/// Removes a folder of recording files; anything else in it stays, and the folder with it.
void remove_recording(const std::string& path) noexcept;
/// Moves an old folder back that a save, killed between two renames, left at `Target::backup_path`.
void recover(const Target& target) noexcept;
/// Removes what killed saves to this target left behind.
void sweep(const Target& target) noexcept;
/// Waits until the names in a folder are on the disk.
void sync_directory(const std::string& call, const std::string& path);

}  // namespace torchtap::storage::detail
