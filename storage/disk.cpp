#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <regex>
#include <system_error>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/disk.hpp>
#include <utility>

namespace torchtap::storage::detail {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr std::size_t kDirect = std::size_t{1} << 16;  // not worth a copy into the buffer
constexpr std::size_t kLongestName = 160;  // leaves room for what temporary names add (NAME_MAX is 255)

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

/// The names in an open folder, or an errno.
int list_into(const std::string& path, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path.c_str()));
  if (directory == nullptr) return errno;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  return errno;
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string joined(const std::string& parent, const std::string& name) {
  return parent.empty() || parent.back() == '/' ? parent + name : parent + "/" + name;
}

/// The path without symbolic links, or "" and an errno.
std::string real(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
  return resolved == nullptr ? std::string() : std::string(resolved.get());
}

bool same_file(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

std::string unique_suffix() {
  static std::atomic<unsigned> counter{0};
  char text[80];
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::snprintf(text, sizeof text, "%lx-%llx-%x", static_cast<long>(::getpid()),
                static_cast<unsigned long long>(now), counter.fetch_add(1));
  return text;
}

/// rename(2) with flags, -1 and ENOSYS where there is none.
int rename_flags(const std::string& from, const std::string& to, unsigned flags) {
#if defined(__linux__) && defined(RENAME_EXCHANGE)
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
#else
  errno = ENOSYS;
  return -1;
#endif
}

#if defined(__linux__) && defined(RENAME_EXCHANGE)
constexpr unsigned kExchange = RENAME_EXCHANGE;
constexpr unsigned kNoReplace = RENAME_NOREPLACE;
#else
constexpr unsigned kExchange = 2;
constexpr unsigned kNoReplace = 1;
#endif

bool unsupported(int error) {
  return error == ENOSYS || error == EINVAL || error == EOPNOTSUPP || error == ENOTSUP;
}

}  // namespace

void io_error(const std::string& call, const std::string& verb, const std::string& path, int error) {
  TORCH_CHECK(false, call, ": cannot ", verb, " \"", path, "\": ", std::generic_category().message(error),
              " (errno ", error, ").");
}

void bad_file(const std::string& call, const std::string& path, const std::string& reason) {
  TORCH_CHECK_VALUE(false, call, ": cannot read \"", path, "\": ", reason, ".");
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  Descriptor old(release());
  fd_ = other.release();
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int Descriptor::release() noexcept {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

OutputFile::OutputFile(std::string call, std::string path, Descriptor fd)
    : call_(std::move(call)), path_(std::move(path)), fd_(std::move(fd)) {}

void OutputFile::write(const void* data, std::size_t size) {
  const char* bytes = static_cast<const char*>(data);
  if (buffer_.size() + size > kBuffer || size >= kDirect) flush();
  if (size >= kDirect) {
    write_through(bytes, size);
  } else {
    buffer_.insert(buffer_.end(), bytes, bytes + size);
  }
}

void OutputFile::patch(std::uint64_t offset, const void* data, std::size_t size) {
  flush();
  write_at(call_, path_, fd_.get(), offset, data, size);
}

void write_at(const std::string& call, const std::string& path, int fd, std::uint64_t offset,
              const void* data, std::size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ::ssize_t written = ::pwrite(fd, bytes, size, static_cast<::off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      io_error(call, "write", path, errno);
    }
    if (written == 0) io_error(call, "write", path, ENOSPC);
    bytes += written;
    offset += static_cast<std::uint64_t>(written);
    size -= static_cast<std::size_t>(written);
  }
}

void OutputFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputFile::write_through(const char* data, std::size_t size) {
  while (size > 0) {
    const ::ssize_t written = ::write(fd_.get(), data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      io_error(call_, "write", path_, errno);
    }
    if (written == 0) io_error(call_, "write", path_, ENOSPC);
    flushed_ += static_cast<std::uint64_t>(written);
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

void OutputFile::close(bool sync) {
  flush();
  if (sync && ::fsync(fd_.get()) != 0) io_error(call_, "fsync", path_, errno);
  if (::close(fd_.release()) != 0 && errno != EINTR) io_error(call_, "close", path_, errno);
}

Descriptor OutputFile::finish() {
  flush();
  return std::move(fd_);
}

InputFile::InputFile(std::string call, std::string path, Descriptor fd)
    : call_(std::move(call)), path_(std::move(path)), fd_(std::move(fd)) {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) io_error(call_, "stat", path_, errno);
  if (S_ISDIR(status.st_mode)) bad("it is a directory, not a file");
  if (!S_ISREG(status.st_mode)) bad("it is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile InputFile::open(const std::string& call, const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    bad_file(call, path, errno == ENOENT ? "there is no such file" : std::generic_category().message(errno));
  }
  return InputFile(call, path, std::move(fd));
}

InputFile InputFile::open_at(const std::string& call, int directory, const std::string& name,
                             const std::string& path) {
  Descriptor fd(::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd.valid()) {
    if (errno == ENOENT) {
      bad_file(call, path,
               "the recording has no such file; it is incomplete, or was replaced or removed since it was "
               "loaded (then load it again)");
    }
    if (errno == ELOOP)
      bad_file(call, path, "it is a symbolic link, which may lead out of the recording's directory");
    bad_file(call, path, std::generic_category().message(errno));
  }
  return InputFile(call, path, std::move(fd));
}

void InputFile::read_at(std::uint64_t offset, void* data, std::size_t size) const {
  char* bytes = static_cast<char*>(data);
  if (offset > size_ || size > size_ - offset) bad("it ends too early; it is truncated or damaged");
  while (size > 0) {
    const ::ssize_t got = ::pread(fd_.get(), bytes, size, static_cast<::off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      io_error(call_, "read", path_, errno);
    }
    if (got == 0) bad("it was truncated while it was read");
    bytes += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

std::shared_ptr<void> InputFile::map(std::uint64_t offset, std::size_t size) const {
  if (offset > size_ || size > size_ - offset) bad("it ends too early; it is truncated or damaged");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto before = static_cast<std::size_t>(offset % page);
  void* start = ::mmap(nullptr, before + size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_.get(),
                       static_cast<::off_t>(offset - before));
  if (start == MAP_FAILED) io_error(call_, "map", path_, errno);
  return std::shared_ptr<void>(static_cast<char*>(start) + before,
                               [=](void*) { ::munmap(start, before + size); });
}

std::string InputFile::read_all(std::uint64_t most) const {
  if (size_ > most) bad(c10::str("it has ", size_, " bytes, more than the ", most, " that are plausible"));
  std::string bytes(static_cast<std::size_t>(size_), '\0');
  read_at(0, bytes.data(), bytes.size());
  return bytes;
}

void InputFile::bad(const std::string& reason) const {
  bad_file(call_, path_, reason);
}

std::string Target::path() const {
  return joined(parent, name);
}

std::string Target::temporary_prefix() const {
  const bool fits = name.size() <= kLongestName;
  const std::string stem =
      fits ? name : name.substr(0, kLongestName - 20) + std::to_string(std::hash<std::string>()(name));
  return "." + stem + ".torchtap-new-";
}

std::string Target::backup_path() const {
  const std::string prefix = temporary_prefix();
  return joined(parent, prefix.substr(0, prefix.size() - 4) + "old");
}

void Target::undo() const noexcept {
  for (auto folder = created.rbegin(); folder != created.rend(); ++folder) ::rmdir(folder->c_str());
}

Target resolve(const std::string& call, const std::string& path, bool mkdir) {
  TORCH_CHECK_VALUE(!path.empty(), call, ": the path is empty; name a place to save to.");
  TORCH_CHECK_VALUE(path.find('\0') == std::string::npos, call, ": the path \"", path.c_str(),
                    "\" contains a zero byte.");
  Target target;
  std::string resolved = real(path);
  if (!resolved.empty()) {  // it exists, perhaps behind links: what they lead to is replaced, not they
    const auto slash = resolved.rfind('/');
    target.parent = slash == 0 ? "/" : resolved.substr(0, slash);
    target.name = resolved.substr(slash + 1);
    TORCH_CHECK_VALUE(!target.name.empty(), call, ": \"", path,
                      "\" is the root of the file system; name a directory below it.");
    return target;
  }
  if (errno != ENOENT && errno != ENOTDIR) io_error(call, "resolve", path, errno);
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  TORCH_CHECK_VALUE(!exists(plain), call, ": \"", path,
                    "\" is a symbolic link that leads nowhere; remove it.");
  const auto slash = plain.rfind('/');
  std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : plain.substr(0, slash);
  target.name = plain.substr(slash + 1);
  TORCH_CHECK_VALUE(target.name != "." && target.name != "..", call, ": \"", path,
                    "\" does not exist and ends in \"", target.name, "\"; name a directory.");
  if (!is_directory(parent)) {
    TORCH_CHECK_VALUE(mkdir, call, ": the directory \"", parent,
                      "\" does not exist. Create it first, or pass SaveOptions().mkdir(true).");
    for (std::size_t at = 0; at != std::string::npos;) {
      at = parent.find('/', at + 1);
      const std::string part = parent.substr(0, at);
      if (::mkdir(part.c_str(), 0777) == 0) {
        target.created.push_back(part);
      } else if (!is_directory(part)) {
        const int error = errno;
        target.undo();
        io_error(call, "create the directory", part, error == EEXIST ? ENOTDIR : error);
      }
    }
  }
  target.parent = real(parent);
  if (target.parent.empty()) io_error(call, "resolve", parent, errno);
  return target;
}

Staging::Staging(std::string call, const Target& target, Kind kind)
    : call_(std::move(call)), target_(target), kind_(kind) {
  for (int attempt = 0;; ++attempt) {
    path_ = joined(target_.parent, target_.temporary_prefix() + unique_suffix());
    if (kind_ == Kind::directory) {
      if (::mkdir(path_.c_str(), 0777) == 0) {
        fd_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
      } else if (errno != EEXIST) {
        io_error(call_, "create", path_, errno);
      }
    } else {
      fd_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
      if (!fd_.valid() && errno != EEXIST) io_error(call_, "create", path_, errno);
    }
    if (fd_.valid()) {
      // Another save may have taken it for a leftover in the moment before it was locked; then it is gone.
      while (::flock(fd_.get(), LOCK_EX) != 0 && errno == EINTR) {
      }
      if (same_file(fd_.get(), path_)) return;
      fd_ = Descriptor();
    }
    if (attempt == 100) io_error(call_, "create", path_, EEXIST);
  }
}

Staging::~Staging() {
  if (placed_) return;
  if (kind_ == Kind::directory) {
    remove_recording(path_);
  } else {
    ::unlink(path_.c_str());
  }
}

Descriptor Staging::duplicate() const {
  Descriptor fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) io_error(call_, "write", path_, errno);
  return fd;
}

OutputFile Staging::create(const std::string& name) const {
  Descriptor fd(
      ::openat(fd_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) io_error(call_, "create", joined(path_, name), errno);
  return OutputFile(call_, joined(path_, name), std::move(fd));
}

void Staging::put(bool overwrite, bool sync, bool exchange) {
  if (kind_ == Kind::directory) {
    if (sync && ::fsync(fd_.get()) != 0) io_error(call_, "fsync", path_, errno);
    put_directory(overwrite, exchange);
  } else {
    put_file(overwrite);
  }
  if (!sync) return;
  sync_directory(call_, target_.parent);
  // The folders that were made on the way are names in their own parents.
  for (const auto& folder : target_.created) sync_directory(call_, joined(folder, ".."));
}

void Staging::put_file(bool overwrite) {
  const std::string to = target_.path();
  struct stat old {};
  if (overwrite) {
    if (::stat(to.c_str(), &old) == 0) ::fchmod(fd_.get(), old.st_mode & 07777);  // best effort
    if (::rename(path_.c_str(), to.c_str()) != 0) io_error(call_, "replace", to, errno);
    placed_ = true;
    return;
  }
  int failed = rename_flags(path_, to, kNoReplace);
  if (failed != 0 && unsupported(errno)) {  // link(2) refuses to replace, too
    failed = ::link(path_.c_str(), to.c_str());
    if (failed == 0) ::unlink(path_.c_str());
  }
  if (failed != 0) {
    const int error = errno;
    TORCH_CHECK_VALUE(error != EEXIST, call_, ": \"", to,
                      "\" exists already. Choose another name, or pass SaveOptions().overwrite(true).");
    io_error(call_, "create", to, error);
  }
  placed_ = true;
}

void Staging::put_directory(bool overwrite, bool exchange) {
  const std::string to = target_.path();
  struct stat old {};
  if (::stat(to.c_str(), &old) == 0) ::fchmod(fd_.get(), old.st_mode & 07777);  // best effort
  // Onto nothing or onto an empty folder, the plain rename is the one step.
  if (::rename(path_.c_str(), to.c_str()) == 0) {
    placed_ = true;
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) io_error(call_, "create", to, errno);
  TORCH_CHECK_VALUE(overwrite, call_, ": \"", to,
                    "\" holds a recording already. Choose another directory, or pass "
                    "SaveOptions().overwrite(true).");
  if (exchange) {
    if (rename_flags(path_, to, kExchange) == 0) {
      placed_ = true;
      remove_recording(path_);  // the old one now
      return;
    }
    if (!unsupported(errno)) io_error(call_, "replace", to, errno);
  }
  const std::string backup = target_.backup_path();
  remove_recording(backup);
  if (::rename(to.c_str(), backup.c_str()) != 0) io_error(call_, "move aside", to, errno);
  if (::rename(path_.c_str(), to.c_str()) != 0) {
    const int error = errno;
    ::rename(backup.c_str(), to.c_str());
    io_error(call_, "replace", to, error);
  }
  placed_ = true;
  remove_recording(backup);
}

void check_replaceable(const std::string& call, const std::string& path, bool overwrite) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  TORCH_CHECK_VALUE(S_ISREG(status.st_mode), call, ": \"", path, "\" is ",
                    S_ISDIR(status.st_mode) ? "a directory" : "not a regular file",
                    "; name a file to write to.");
  TORCH_CHECK_VALUE(overwrite, call, ": \"", path,
                    "\" exists already. Choose another name, or pass SaveOptions().overwrite(true).");
}

bool is_recording_file(const std::string& name) {
  static const std::regex names(
      "manifest\\.json(\\.part)?|journal\\.jsonl|[0-9]+\\.pt|[0-9]+(\\.[0-9]+)?-[0-9]+\\.(pt|part|lost)");
  return std::regex_match(name, names);
}

std::vector<std::string> list(const std::string& call, const std::string& path) {
  std::vector<std::string> names;
  const int error = list_into(path, names);
  if (error != 0) io_error(call, "list", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_spooling(const std::string& path) noexcept {
  const Descriptor fd(
      ::open((path + "/journal.jsonl").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void remove_recording(const std::string& path) noexcept {
  try {
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid()) return;
    std::vector<std::string> names;
    list_into(path, names);
    for (const auto& name : names) {
      if (is_recording_file(name)) ::unlinkat(fd.get(), name.c_str(), 0);
    }
    ::rmdir(path.c_str());
  } catch (...) {  // out of memory: what is left is a leftover, and the next save's
  }
}

void recover(const Target& target) noexcept {
  try {
    const std::string backup = target.backup_path();
    if (!exists(backup)) return;
    if (!exists(target.path())) {
      ::rename(backup.c_str(), target.path().c_str());
    } else if (exists(joined(target.path(), "manifest.json"))) {
      remove_recording(backup);
    }
  } catch (...) {
  }
}

void sweep(const Target& target) noexcept {
  try {
    std::vector<std::string> names;
    list_into(target.parent, names);
    const std::string prefix = target.temporary_prefix();
    for (const auto& name : names) {
      if (name.compare(0, prefix.size(), prefix) != 0) continue;
      const std::string path = joined(target.parent, name);
      const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
      if (!fd.valid() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || !same_file(fd.get(), path)) continue;
      struct stat status {};
      if (::fstat(fd.get(), &status) != 0) continue;
      if (S_ISDIR(status.st_mode)) {
        remove_recording(path);
      } else if (S_ISREG(status.st_mode)) {
        ::unlink(path.c_str());
      }
    }
  } catch (...) {
  }
}

void sync_directory(const std::string& call, const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) io_error(call, "open", path, errno);
  // Some file systems cannot sync a folder and say EINVAL; there the rename is all there is.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) io_error(call, "fsync", path, errno);
}

}  // namespace torchtap::storage::detail
