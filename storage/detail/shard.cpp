// Writes and completes one shard.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/pt.hpp>
#include <torchtap/storage/detail/shard.hpp>

namespace torchtap::storage::detail {
namespace {

/// Reads `size` bytes from `offset` on, piece by piece, and hands each piece over with its offset.
template <class Take>
void each_piece(const base::InputFile& file, std::uint64_t offset, std::uint64_t size, const Take& take) {
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::uint64_t done = 0; done < size;) {
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - done));
    file.read_at(offset + done, buffer.data(), piece);
    take(buffer.data(), piece, offset + done);
    done += piece;
  }
}

}  // namespace

std::uint64_t Run::bytes() const noexcept {
  if (!defined) return 0;
  auto bytes = static_cast<std::uint64_t>(c10::elementSize(dtype)) * static_cast<std::uint64_t>(count);
  for (const auto size : sizes) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

Shard::Shard(std::shared_ptr<const ShardFolder> folder, std::string name, std::int64_t slot)
    : folder_(std::move(folder)), name_(std::move(name)), slot_(slot) {}

std::string Shard::path() const {
  return folder_->path + "/" + name_ + (placed_ ? ".pt" : ".part");
}

int Shard::open() {
  if (fd_.valid()) return fd_.get();
  const std::string name = name_ + (placed_ ? ".pt" : ".part");
  fd_ = base::Descriptor(::openat(folder_->fd.get(), name.c_str(),
                                  O_RDWR | O_CLOEXEC | O_NOFOLLOW | (created_ ? 0 : O_CREAT | O_EXCL), 0666));
  if (!fd_.valid()) base::io_error(folder_->call, created_ ? "open" : "create", path(), errno);
  created_ = true;
  return fd_.get();
}

void Shard::write_at(std::uint64_t offset, const void* data, std::size_t size) {
  const int fd = open();
  try {
    base::write_at(folder_->call, path(), fd, offset, data, size);
  } catch (...) {
    // The next attempt opens the file again. The descriptor is not closed if it refers to another file by
    // now.
    struct stat open_file {
    }, named{};
    const bool ours = ::fstat(fd, &open_file) == 0 && ::stat(path().c_str(), &named) == 0 &&
                      open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
    if (!ours) fd_.release();
    fd_ = base::Descriptor();
    throw;
  }
}

void Shard::begin(c10::ScalarType dtype) {
  if (!parts_.empty() && parts_.back().dtype == dtype) return;
  Part part;
  part.dtype = dtype;
  part.record.name = "archive/data/" + std::to_string(parts_.size());
  if (!parts_.empty()) part.record.offset = parts_.back().data_at + parts_.back().record.size;
  part.data_at = place_record(part.record);
  parts_.push_back(std::move(part));
}

void Shard::write(c10::ScalarType dtype, const void* data, std::size_t size) {
  if (!dirty_) {
    parts_before_ = parts_.size();
    size_before_ = parts_.empty() ? 0 : parts_.back().record.size;
    crc_before_ = parts_.empty() ? 0 : parts_.back().record.crc;
    dirty_ = true;
  }
  if (file_size_ != 0) reopen();
  begin(dtype);
  Part& part = parts_.back();
  write_at(part.data_at + part.record.size, data, size);
  part.record.crc = base::crc32(part.record.crc, data, size);
  part.record.size += size;
}

// Undoes `complete`: without its first header, readers take the file for an unfinished shard.
void Shard::reopen() {
  const std::string nothing(4, '\0');
  write_at(0, nothing.data(), nothing.size());
  const std::uint64_t end = parts_.empty() ? 0 : parts_.back().data_at + parts_.back().record.size;
  if (::ftruncate(open(), static_cast<::off_t>(end)) != 0)
    base::io_error(folder_->call, "truncate", path(), errno);
  file_size_ = 0;
}

void Shard::commit(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.defined) begin(run.dtype);  // samples without elements were not written
    samples_ += run.count;
    bytes_ += run.bytes();
    if (!runs_.empty() && runs_.back().defined == run.defined &&
        (!run.defined || (runs_.back().dtype == run.dtype && runs_.back().sizes == run.sizes))) {
      runs_.back().count += run.count;
    } else {
      runs_.push_back(run);
    }
  }
  dirty_ = false;
}

void Shard::rollback() {
  if (!dirty_) return;
  parts_.resize(parts_before_);
  if (!parts_.empty()) {
    parts_.back().record.size = size_before_;
    parts_.back().record.crc = crc_before_;
  }
  dirty_ = false;
}

/// The samples as the pickle refers to them: by record, offset and shape.
std::vector<StoredRun> Shard::stored_runs() const {
  std::vector<StoredRun> stored;
  std::size_t part = 0;
  std::int64_t offset = 0;
  for (const Run& run : runs_) {
    StoredRun next;
    next.defined = run.defined;
    next.count = run.count;
    if (run.defined) {
      while (parts_[part].dtype != run.dtype) {
        ++part;
        offset = 0;
      }
      const auto element = static_cast<std::int64_t>(c10::elementSize(run.dtype));
      next.key = std::to_string(part);
      next.dtype = run.dtype;
      next.storage_elements = static_cast<std::int64_t>(parts_[part].record.size) / element;
      next.offset = offset;
      next.sizes = run.sizes;
      offset += static_cast<std::int64_t>(run.bytes()) / element;
    }
    stored.push_back(std::move(next));
  }
  return stored;
}

void Shard::complete() {
  rollback();
  std::vector<ZipRecord> records;
  std::uint64_t at = 0;
  for (const Part& each : parts_) {
    const std::string header = local_header(each.record, each.data_at);
    write_at(each.record.offset, header.data(), header.size());
    records.push_back(each.record);
    at = each.data_at + each.record.size;
  }
  const auto append = [&](const std::string& name, const std::string& data) {
    ZipRecord record{"archive/" + name, base::crc32(0, data.data(), data.size()), data.size(), at};
    const std::uint64_t data_at = place_record(record);
    const std::string bytes = local_header(record, data_at) + data;
    write_at(at, bytes.data(), bytes.size());
    at = data_at + data.size();
    records.push_back(std::move(record));
  };
  append("data.pkl", pickle_runs(stored_runs(), stacked()));
  for (const auto& [name, data] : fixed_records()) append(name, data);
  const std::string directory = zip_directory(records, at);
  write_at(at, directory.data(), directory.size());
  file_size_ = at + directory.size();
  // A failed write may have left bytes behind the end.
  if (::ftruncate(open(), static_cast<::off_t>(file_size_)) != 0) {
    base::io_error(folder_->call, "truncate", path(), errno);
  }
}

void Shard::sync() {
  if (suspect_) rewrite();
  if (::fsync(open()) == 0) return;
  suspect_ = true;
  base::io_error(folder_->call, "fsync", path(), errno);
}

// Writes everything again: after a failed fsync, the system takes pages for written that are not, and the
// next fsync succeeds without them.
void Shard::rewrite() {
  const base::InputFile file(folder_->call, path(), base::Descriptor(::fcntl(open(), F_DUPFD_CLOEXEC, 0)));
  for (const Part& part : parts_) {
    std::uint32_t crc = 0;
    each_piece(file, part.data_at, part.record.size,
               [&](const char* data, std::size_t count, std::uint64_t at) {
                 crc = base::crc32(crc, data, count);
                 write_at(at, data, count);
               });
    TORCH_CHECK(crc == part.record.crc, folder_->call, ": the system has lost what was written to \"", path(),
                "\" before it reached the disk; ", samples_, " samples in it are damaged.");
  }
  suspect_ = false;
}

void Shard::place() {
  if (placed_) return;
  const std::string from = name_ + ".part", to = name_ + ".pt";
  if (::renameat(folder_->fd.get(), from.c_str(), folder_->fd.get(), to.c_str()) != 0) {
    base::io_error(folder_->call, "rename", path(), errno);
  }
  placed_ = true;
}

ShardInfo Shard::info() const {
  ShardInfo info;
  info.file = name_ + ".pt";
  info.slot = slot_;
  info.samples = samples_;
  info.bytes = static_cast<std::int64_t>(file_size_);
  info.holds = stacked() ? "tensor" : "list";
  for (const Run& run : runs_) {
    if (run.defined) info.form.add(run.dtype, run.sizes);
  }
  return info;
}

std::uint64_t Shard::adopt(const Run& kind) {
  created_ = true;
  struct stat status {};
  if (::fstat(open(), &status) != 0) base::io_error(folder_->call, "stat", path(), errno);
  begin(kind.dtype);
  Part& part = parts_.back();
  Run run = kind;
  run.count = 1;
  const std::uint64_t sample = run.bytes();
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t left = size > part.data_at ? size - part.data_at : 0;
  // If it was being completed, its first header says where the samples end.
  const base::InputFile file(folder_->call, path(), base::Descriptor(::fcntl(open(), F_DUPFD_CLOEXEC, 0)));
  std::string header(static_cast<std::size_t>(std::min(size, part.data_at)), '\0');
  file.read_at(0, header.data(), header.size());
  if (const auto claimed = record_size(header)) left = std::min(left, *claimed);
  if (sample == 0) return left;
  run.count = static_cast<std::int64_t>(left / sample);
  if (kind.count >= 0) run.count = std::min(run.count, kind.count);
  if (run.count == 0) return left;
  left -= run.bytes();
  part.record.size = run.bytes();
  each_piece(file, part.data_at, part.record.size, [&](const char* data, std::size_t count, std::uint64_t) {
    part.record.crc = base::crc32(part.record.crc, data, count);
  });
  commit({run});
  return left;
}

}  // namespace torchtap::storage::detail
