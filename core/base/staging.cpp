// Temporary names, locks and renames.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/base/system.hpp>

namespace torchtap::base {
namespace {

constexpr std::size_t kLongestName = 160;  // leaves room for the rest of temporary names (NAME_MAX is 255)

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
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

bool unsupported(int error) {
  return error == ENOSYS || error == EINVAL || error == EOPNOTSUPP || error == ENOTSUP;
}

}  // namespace

std::string Target::path() const {
  return joined_path(parent, name);
}

std::string Target::temporary_prefix() const {
  const bool fits = name.size() <= kLongestName;
  const std::string stem =
      fits ? name : name.substr(0, kLongestName - 20) + std::to_string(std::hash<std::string>()(name));
  return "." + stem + ".torchtap-new-";
}

std::string Target::backup_path() const {
  const std::string prefix = temporary_prefix();
  return joined_path(parent, prefix.substr(0, prefix.size() - 4) + "old");
}

void Target::undo() const noexcept {
  for (auto folder = created.rbegin(); folder != created.rend(); ++folder) ::rmdir(folder->c_str());
}

Target resolve(const std::string& call, const std::string& path, bool mkdir) {
  TORCH_CHECK_VALUE(!path.empty(), call, ": the path is empty; name a place to save to.");
  TORCH_CHECK_VALUE(path.find('\0') == std::string::npos, call, ": the path \"", path.c_str(),
                    "\" contains a zero byte.");
  Target target;
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  for (;;) {
    const std::string resolved = real(path);
    if (!resolved.empty()) {  // it exists; links are followed, not replaced
      const auto slash = resolved.rfind('/');
      target.parent = slash == 0 ? "/" : resolved.substr(0, slash);
      target.name = resolved.substr(slash + 1);
      TORCH_CHECK_VALUE(!target.name.empty(), call, ": \"", path,
                        "\" is the root of the file system; name a directory below it.");
      return target;
    }
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) io_error(call, "resolve", path, error);
    struct stat now {};
    if (::lstat(plain.c_str(), &now) != 0) break;
    TORCH_CHECK_VALUE(!S_ISLNK(now.st_mode), call, ": \"", path,
                      "\" is a symbolic link that leads nowhere; remove it.");
    TORCH_CHECK_VALUE(
        error != ENOTDIR, call, ": \"", path,
        "\" ends in a slash, but is not a directory; leave the slash out or choose another name.");
    // Another save has put it there since.
  }
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

Staging::Staging(std::string call, const Target& target) : Staging(std::move(call), target, nullptr) {}

Staging::Staging(std::string call, const Target& target, Owned ours)
    : call_(std::move(call)), target_(target), ours_(ours) {
  create();
}

void Staging::create() {
  for (int attempt = 0;; ++attempt) {
    path_ = joined_path(target_.parent, target_.temporary_prefix() + unique_suffix());
    if (ours_ != nullptr) {
      if (::mkdir(path_.c_str(), 0777) == 0) {
        fd_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
        if (!fd_.valid() && errno != ENOENT) {
          const int error = errno;
          ::rmdir(path_.c_str());
          io_error(call_, "open", path_, error);
        }
      } else if (errno != EEXIST) {
        io_error(call_, "create", path_, errno);
      }
    } else {
      fd_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
      if (!fd_.valid() && errno != EEXIST) io_error(call_, "create", path_, errno);
    }
    if (fd_.valid()) {
      // Before it was locked, another save may have removed it as a leftover.
      while (::flock(fd_.get(), LOCK_EX) != 0 && errno == EINTR) {
      }
      if (same_file(fd_.get(), path_)) return;
      fd_ = Descriptor();
    }
    if (attempt == 100) io_error(call_, "create", path_, EEXIST);
  }
}

Staging::~Staging() {
  if (placed_) {
    if (!old_.empty()) remove_folder(old_, ours_);
    return;
  }
  if (!old_.empty()) ::rename(old_.c_str(), target_.path().c_str());
  if (stays_) return;
  if (ours_ != nullptr) {
    remove_folder(path_, ours_);
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
  if (!fd.valid()) io_error(call_, "create", joined_path(path_, name), errno);
  return OutputFile(call_, joined_path(path_, name), std::move(fd));
}

void Staging::put(bool overwrite, bool sync) {
  place(overwrite, sync);
  settle(sync);
}

void Staging::place(bool overwrite, bool sync) {
  if (placed_) return;
  if (ours_ == nullptr) return place_file(overwrite);
  if (sync && ::fsync(fd_.get()) != 0) io_error(call_, "fsync", path_, errno);
  place_directory(overwrite);
}

void Staging::settle(bool sync) {
  if (sync) {
    try {
      sync_directory(call_, target_.parent);
      // The names of new folders are in their parents, which are synced, too.
      for (const auto& folder : target_.created) sync_directory(call_, joined_path(folder, ".."));
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, error.what_without_backtrace(), " \"", target_.path(),
                  "\" is in place and whole, but a power failure may undo that.");
    }
  }
  if (!old_.empty()) remove_folder(old_, ours_);
  old_.clear();
}

void Staging::place_file(bool overwrite) {
  const std::string to = target_.path();
  struct stat old {};
  if (overwrite) {
    if (::stat(to.c_str(), &old) == 0) ::fchmod(fd_.get(), old.st_mode & 07777);  // best effort
    if (::rename(path_.c_str(), to.c_str()) != 0) io_error(call_, "replace", to, errno);
    placed_ = true;
    return;
  }
  int failed = rename(path_, to, Rename::no_replace);
  if (failed != 0 && unsupported(errno)) {  // link(2) does not replace either
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

void Staging::place_directory(bool overwrite) {
  const std::string to = target_.path();
  struct stat old {};
  if (::stat(to.c_str(), &old) == 0) ::fchmod(fd_.get(), old.st_mode & 07777);  // best effort
  // A plain rename is enough if the target is missing or an empty folder.
  if (::rename(path_.c_str(), to.c_str()) == 0) {
    placed_ = true;
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) io_error(call_, "create", to, errno);
  TORCH_CHECK_VALUE(overwrite, call_, ": \"", to,
                    "\" holds a recording already. Choose another directory, or pass "
                    "SaveOptions().overwrite(true).");
  if (rename(path_, to, Rename::exchange) == 0) {
    old_ = path_;
  } else {
    if (!unsupported(errno)) io_error(call_, "replace", to, errno);
    move_aside(to);
  }
  placed_ = true;
}

/// Replaces the folder `to` by two renames, for systems that cannot exchange.
void Staging::move_aside(const std::string& to) {
  const std::string backup = target_.backup_path();
  remove_folder(backup, ours_);
  if (::rename(to.c_str(), backup.c_str()) != 0) io_error(call_, "move aside", to, errno);
  old_ = backup;
  if (::rename(path_.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  if (::rename(backup.c_str(), to.c_str()) == 0) old_.clear();
  io_error(call_, "replace", to, error);
}

void check_replaceable(const std::string& call, const std::string& path, bool overwrite) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    io_error(call, "look at", path, errno);
  }
  TORCH_CHECK_VALUE(S_ISREG(status.st_mode), call, ": \"", path, "\" is ",
                    S_ISDIR(status.st_mode) ? "a directory" : "not a regular file",
                    "; name a file to write to.");
  TORCH_CHECK_VALUE(overwrite, call, ": \"", path,
                    "\" exists already. Choose another name, or pass SaveOptions().overwrite(true).");
}

void check_exchangeable(const std::string& call, const std::string& path) {
  struct stat status {
  }, other{};
  if (::stat(path.c_str(), &status) != 0) return;
  TORCH_CHECK_VALUE(
      ::stat(".", &other) != 0 || other.st_dev != status.st_dev || other.st_ino != status.st_ino, call,
      ": \"", path,
      "\" is the current directory, which cannot be replaced as a whole; name a directory in it.");
  TORCH_CHECK_VALUE(::stat(joined_path(path, "..").c_str(), &other) != 0 || other.st_dev == status.st_dev,
                    call, ": \"", path,
                    "\" is a mount point, which cannot be replaced as a whole; name a directory in it.");
}

void remove_folder(const std::string& path, Owned ours) noexcept {
  try {
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid()) return;
    std::vector<std::string> names;
    names_into(path, names);
    for (const auto& name : names) {
      if (ours(name) && ::unlinkat(fd.get(), name.c_str(), 0) != 0)
        remove_folder(joined_path(path, name), ours);
    }
    ::rmdir(path.c_str());
  } catch (...) {  // out of memory: the next save removes the rest
  }
}

void put_back(const Target& target, Owned ours, const std::string& marker) noexcept {
  try {
    const std::string backup = target.backup_path();
    if (!exists(backup)) return;
    if (!exists(target.path())) {
      ::rename(backup.c_str(), target.path().c_str());
    } else if (exists(joined_path(target.path(), marker))) {
      remove_folder(backup, ours);
    }
  } catch (...) {
  }
}

void sweep(const Target& target, Owned ours) noexcept {
  try {
    std::vector<std::string> names;
    names_into(target.parent, names);
    const std::string prefix = target.temporary_prefix();
    for (const auto& name : names) {
      if (name.compare(0, prefix.size(), prefix) != 0) continue;
      const std::string path = joined_path(target.parent, name);
      const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
      if (!fd.valid() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || !same_file(fd.get(), path)) continue;
      struct stat status {};
      if (::fstat(fd.get(), &status) != 0) continue;
      if (S_ISDIR(status.st_mode)) {
        if (ours != nullptr) remove_folder(path, ours);
      } else if (S_ISREG(status.st_mode)) {
        ::unlink(path.c_str());
      }
    }
  } catch (...) {
  }
}

}  // namespace torchtap::base
