// Files on POSIX systems.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>

namespace torchtap::base {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr std::size_t kSmallFile = std::size_t{1} << 12;  // bytes, which hold a few small tensors
constexpr std::size_t kDirect = std::size_t{1} << 16;     // from this size on, not copied into the buffer

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

}  // namespace

int names_into(const std::string& path, std::vector<std::string>& names) {
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

std::string joined_path(const std::string& parent, const std::string& name) {
  return parent.empty() || parent.back() == '/' ? parent + name : parent + "/" + name;
}

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
  if (buffer_.capacity() == 0) buffer_.reserve(kSmallFile);
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
  // O_NONBLOCK: opening a pipe without a writer would block.
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
  if (size_ > most) bad(c10::str("it has ", size_, " bytes, more than the ", most, " that it may have"));
  std::string bytes(static_cast<std::size_t>(size_), '\0');
  read_at(0, bytes.data(), bytes.size());
  return bytes;
}

void InputFile::bad(const std::string& reason) const {
  bad_file(call_, path_, reason);
}

std::vector<std::string> names_in(const std::string& call, const std::string& path) {
  std::vector<std::string> names;
  const int error = names_into(path, names);
  if (error != 0) io_error(call, "list", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

void sync_directory(const std::string& call, const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) io_error(call, "open", path, errno);
  // Some file systems cannot sync a folder and report EINVAL; on these the rename has to do.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) io_error(call, "fsync", path, errno);
}

}  // namespace torchtap::base
