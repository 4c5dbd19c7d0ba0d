// Frames, one after another, through a buffer.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/no_pipe_signal.hpp>
#include <torchtap/views/compare/detail/prints_file.hpp>

namespace torchtap::views::compare::detail {
namespace {

constexpr char kCall[] = "views::compare::Fingerprints";
constexpr std::size_t kBuffer = std::size_t{64} << 10;

base::Descriptor open(const std::string& path) {
  if (path == "-") return base::Descriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  base::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
  struct stat status {};
  if (file.valid() && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    char magic[4];
    const bool frames = status.st_size == 0 || (::pread(file.get(), magic, sizeof magic, 0) == sizeof magic &&
                                                std::memcmp(magic, "TTF1", sizeof magic) == 0);
    TORCH_CHECK_VALUE(
        frames, kCall, ": \"", path,
        "\" is there and holds no fingerprints, so it is not overwritten; choose another file.");
    if (::ftruncate(file.get(), 0) != 0) base::io_error(kCall, "write", path, errno);
    return file;
  }
  // A pipe or a device. Opening a pipe waits for its reader.
  return base::Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
}

}  // namespace

PrintsFile::PrintsFile(const std::string& path) : path_(path), file_(open(path)) {
  if (!file_.valid()) base::io_error(kCall, "write", path_, errno);
}

PrintsFile::~PrintsFile() {
  flush();
}

void PrintsFile::write(frames::Frame frame, bool now) noexcept {
  frame.time_ns = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  frame.has_checksum = !frame.without_data;
  if (frame.has_checksum) frame.checksum = base::crc32(0, frame.data, frame.data_bytes);
  const std::lock_guard lock(mutex_);
  if (error_ != 0) return;
  try {
    frame.sequence = written_++;
    const std::size_t at = buffer_.size();
    buffer_.resize(at + frames::frame_bytes(frame));
    frames::write_header(frame, buffer_.data() + at);
    if (frame.data_bytes != 0) {
      std::memcpy(buffer_.data() + at + frames::header_bytes(frame), frame.data, frame.data_bytes);
    }
  } catch (const std::bad_alloc&) {
    error_ = ENOMEM;
  }
  if (now || write_ || buffer_.size() >= kBuffer) flush();
}

void PrintsFile::flush() noexcept {
  if (buffer_.empty()) return;
  if (!write_) {
    write_out();
  } else if (error_ == 0) {
    try {
      write_(buffer_.data(), buffer_.size());
    } catch (const std::exception&) {
      error_ = ENOMEM;
    }
  }
  buffer_.clear();
}

void PrintsFile::write_out() {
  const base::NoPipeSignal ignored;
  for (std::size_t at = 0; at < buffer_.size() && error_ == 0;) {
    const ::ssize_t size = ::write(file_.get(), buffer_.data() + at, buffer_.size() - at);
    if (size > 0) {
      at += static_cast<std::size_t>(size);
    } else if (size == 0 || errno != EINTR) {
      error_ = size == 0 ? ENOSPC : errno;
    }
  }
}

std::int64_t PrintsFile::frames() {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(written_);
}

void PrintsFile::close() {
  const std::lock_guard lock(mutex_);
  flush();
  TORCH_CHECK(error_ == 0 || !write_, kCall, ": the function that gets the bytes threw.");
  if (error_ != 0) base::io_error(kCall, "write", path_, error_);
}

}  // namespace torchtap::views::compare::detail
