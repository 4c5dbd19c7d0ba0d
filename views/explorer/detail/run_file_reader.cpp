// Reads blocks.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/views/explorer/detail/bytes.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::uint64_t header_size = 8;
constexpr std::size_t head_size = 12;  // of a block
constexpr std::uint32_t largest_block = std::uint32_t{1} << 30;

std::uint64_t size_of(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

/// As many bytes as there are.
std::string bytes_at(int file, std::uint64_t at, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(file, bytes.data() + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

RunFileReader::RunFileReader(const std::string& directory, std::int64_t number)
    : RunFileReader(run_file_path(directory, number), OfFile{}) {}

RunFileReader::RunFileReader(const std::string& path, OfFile) : path_(path) {
  open();
}

void RunFileReader::reopen() {
  ::close(file_);
  at_ = 0;
  open();
}

bool RunFileReader::replaced() const {
  struct stat here {
  }, there{};
  return ::fstat(file_, &here) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         (here.st_ino != there.st_ino || here.st_dev != there.st_dev);
}

void RunFileReader::open() {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  TORCH_CHECK(file_ >= 0, "views::explorer: cannot read the run ", path_, ": ", std::strerror(errno),
              "; pass a directory that ExplorerOptions().save() named.");
  const std::string header = bytes_at(file_, 0, header_size);
  if (header.size() < header_size) return;  // it is being written
  const bool ours = header.compare(0, 4, run_file_head(), 0, 4) == 0;
  const std::string why =
      ours ? base::unreadable_format(static_cast<unsigned char>(header[4]), run_file_format)
           : "it is no run of an explorer";
  if (!why.empty()) ::close(std::exchange(file_, -1));
  TORCH_CHECK_VALUE(why.empty(), "views::explorer: cannot read \"", path_, "\": ", why, ".");
}

RunFileReader::~RunFileReader() {
  if (file_ >= 0) ::close(file_);
}

bool RunFileReader::has_writer() const {
  if (::flock(file_, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  ::flock(file_, LOCK_UN);
  return false;
}

void RunFileReader::read(const Function& function) {
  const std::uint64_t end = size_of(file_);
  if (at_ == 0 && end < header_size) return;
  at_ = read_from(std::max(at_, header_size), end, function);
}

void RunFileReader::scan(BlockKind kind, const Function& function) {
  if (at_ == 0) return;
  read_from(header_size, at_, [&](BlockKind found, const std::string& body) {
    if (found == kind) function(found, body);
  });
}

/// Returns where the last complete block ends.
std::uint64_t RunFileReader::read_from(std::uint64_t at, std::uint64_t end, const Function& function) {
  constexpr std::size_t step = std::size_t{1} << 22;
  std::string bytes;
  std::size_t used = 0;
  std::uint64_t fetched = at;
  const auto have = [&](std::size_t size) {
    while (bytes.size() - used < size && fetched < end) {
      bytes.erase(0, used);
      used = 0;
      const std::string more =
          bytes_at(file_, fetched,
                   static_cast<std::size_t>(std::min<std::uint64_t>(end - fetched, std::max(step, size))));
      if (more.empty()) return false;
      fetched += more.size();
      bytes += more;
    }
    return bytes.size() - used >= size;
  };
  while (have(head_size)) {
    Bytes head(std::string_view(bytes).substr(used, head_size));
    const auto size = head.get<std::uint32_t>(), sum = head.get<std::uint32_t>(),
               own = head.get<std::uint32_t>();
    bool sound = own == base::crc32(0, bytes.data() + used, 8) && size > 0 && size <= largest_block;
    if (sound && at + head_size + size > end) break;  // it is being written, or its writer was killed
    sound = sound && have(head_size + size);
    const char* const payload = bytes.data() + used + head_size;
    sound = sound && base::crc32(0, payload, size) == sum;
    // A file system that lost power may have room at the end that was never written.
    if (!sound && size == 0 && sum == 0 && bytes.find_first_not_of('\0', used) == std::string::npos) break;
    TORCH_CHECK_VALUE(
        sound, "views::explorer: ", path_, " is damaged at byte ", at,
        ": the checksum is not that of the data. What was before it could be read; cut the file ",
        "off there (truncate -s ", at, ") to see that much.");
    function(static_cast<BlockKind>(payload[0]), std::string(payload + 1, size - 1));
    used += head_size + size;
    at += head_size + size;
  }
  return at;
}

}  // namespace torchtap::views::explorer::detail
