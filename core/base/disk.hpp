#pragma once

/// Reads and writes files, and reports every failure.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Throws `c10::Error`: "`call`: cannot `verb` "`path`": No space left on device (errno 28)."
[[noreturn]] TORCHTAP_API void io_error(const std::string& call, const std::string& verb,
                                        const std::string& path, int error);
/// Throws `c10::ValueError`: "`call`: cannot read "`path`": `reason`."
[[noreturn]] void bad_file(const std::string& call, const std::string& path, const std::string& reason);

/// An open file descriptor, closed with its owner. Move-only.
class TORCHTAP_API Descriptor {
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

/// Writes all of `data` at `offset`; `call` and `path` are for messages.
void write_at(const std::string& call, const std::string& path, int fd, std::uint64_t offset,
              const void* data, std::size_t size);

/// A file being written: buffered and counted. Every failure of the system is a `c10::Error` that names the
/// file; the destructor only closes it.
class OutputFile {
 public:
  /// `path` is for messages.
  OutputFile(std::string call, std::string path, Descriptor fd);

  void write(const void* data, std::size_t size);
  /// Replaces bytes that were written before.
  void patch(std::uint64_t offset, const void* data, std::size_t size);
  /// The bytes written so far.
  std::uint64_t size() const noexcept { return flushed_ + buffer_.size(); }
  /// Writes the buffer, waits for the disk if `sync`, and closes the file.
  void close(bool sync);
  /// Writes the buffer and returns the descriptor, for a caller that waits for the disk later.
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

/// A regular file, read at offsets that need not be trusted.
class TORCHTAP_API InputFile {
 public:
  /// Throws `c10::ValueError` if `fd` is not a regular file.
  InputFile(std::string call, std::string path, Descriptor fd);
  /// Opens `path`. Throws `c10::ValueError` if there is none or if it is not a regular file.
  static InputFile open(const std::string& call, const std::string& path);
  /// Opens `name` in the folder `directory`; `path` is for messages. Throws `c10::ValueError` as `open`, and
  /// for a symbolic link.
  static InputFile open_at(const std::string& call, int directory, const std::string& name,
                           const std::string& path);

  std::uint64_t size() const noexcept { return size_; }
  const std::string& call() const noexcept { return call_; }
  const std::string& path() const noexcept { return path_; }
  /// Reads exactly `size` bytes. Throws `c10::ValueError` if the file ends before.
  void read_at(std::uint64_t offset, void* data, std::size_t size) const;
  /// Maps `size` bytes from `offset` on into memory, privately: writing to them does not change the file.
  /// Throws `c10::ValueError` if the file ends before.
  std::shared_ptr<void> map(std::uint64_t offset, std::size_t size) const;
  /// Reads the whole file. Throws `c10::ValueError` if it has more than `most` bytes.
  std::string read_all(std::uint64_t most) const;
  /// Throws `c10::ValueError` that names this file and `reason`.
  [[noreturn]] void bad(const std::string& reason) const;

 private:
  std::string call_;
  std::string path_;
  Descriptor fd_;
  std::uint64_t size_ = 0;
};

/// "folder/name".
std::string joined_path(const std::string& folder, const std::string& name);
/// Adds the names in a folder to `names`. Returns 0, or an errno if it cannot be listed.
int names_into(const std::string& path, std::vector<std::string>& names);
/// The names in a folder. Throws `c10::Error` if it cannot be listed.
std::vector<std::string> names_in(const std::string& call, const std::string& path);
/// Waits until the names in a folder are on the disk.
void sync_directory(const std::string& call, const std::string& path);

}  // namespace torchtap::base
