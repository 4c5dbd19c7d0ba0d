// Writes a stream to a staged file, or directly to a pipe, a device or a descriptor.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <ostream>
#include <streambuf>

#include <torchtap/base/error.hpp>
#include <torchtap/base/no_pipe_signal.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/base/write_file.hpp>

namespace torchtap::base {
namespace {

/// Passes the bytes of a stream to an `OutputFile`, which has its own buffer.
class Buffer : public std::streambuf {
 public:
  explicit Buffer(OutputFile& file) : file_(file) {}

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    file_.write(data, static_cast<std::size_t>(size));
    return size;
  }
  int_type overflow(int_type next) override {
    if (traits_type::eq_int_type(next, traits_type::eof())) return traits_type::not_eof(next);
    const char byte = traits_type::to_char_type(next);
    file_.write(&byte, 1);
    return next;
  }

 private:
  OutputFile& file_;
};

/// The place in /proc that `path` leads to, as /dev/stdout does: /proc/PROCESS/fd/NUMBER. Empty if it does
/// not.
std::string in_proc(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  for (int links = 0; links < 40; ++links) {  // as many as the kernel follows
    const auto parent = at.has_parent_path() ? at.parent_path() : std::filesystem::path(".");
    const auto folder = std::filesystem::canonical(parent, error);
    if (error) return {};
    if (folder.string().compare(0, 6, "/proc/") == 0) return (folder / at.filename()).string();
    const auto next = std::filesystem::read_symlink(at, error);
    if (error) return {};
    at = folder / next;  // an absolute one stands for itself
  }
  return {};
}

Descriptor open_in_place(const std::string& call, const std::string& path) {
  const std::string own = "/proc/" + std::to_string(::getpid()) + "/fd/";
  const std::string place = in_proc(path);
  // A descriptor of this process is copied: the copy shares the place in the file, and may be a socket.
  const bool copied = place.compare(0, own.size(), own) == 0;
  Descriptor file(copied ? ::fcntl(std::atoi(place.c_str() + own.size()), F_DUPFD_CLOEXEC, 0)
                         : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) io_error(call, "write", path, errno);
  return file;
}

void put(OutputFile& file, const std::function<void(std::ostream&)>& write, bool sync) {
  Buffer buffer(file);
  std::ostream stream(&buffer);
  stream.imbue(std::locale::classic());
  stream.exceptions(std::ios::badbit);  // rethrows errors of the file
  write(stream);
  file.close(sync);
}

}  // namespace

bool written_in_place(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return false;
  return !S_ISREG(status.st_mode) || !in_proc(path).empty();
}

void write_file(const std::string& call, const std::string& path,
                const std::function<void(std::ostream&)>& write, bool sync) {
  if (written_in_place(path)) {
    const NoPipeSignal ignored;
    OutputFile file(call, path, open_in_place(call, path));
    return put(file, write, /*sync=*/false);  // pipes and terminals have no disk to wait for
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  TORCH_CHECK_VALUE(folder.empty() || std::filesystem::is_directory(folder), call, ": the directory \"",
                    folder, "\" does not exist. Create it first.");
  const Target target = resolve(call, path, /*mkdir=*/false);
  check_replaceable(call, target.path(), /*overwrite=*/true);
  if (sync) sweep(target);  // not for each of thousands of files in a folder
  Staging staging(call, target);
  OutputFile file(call, staging.path(), staging.duplicate());
  put(file, write, sync);
  staging.put(/*overwrite=*/true, sync);
}

}  // namespace torchtap::base
