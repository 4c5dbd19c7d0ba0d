// Writes and reads zip headers and directories.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/storage/detail/zip.hpp>

namespace torchtap::storage::detail {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::size_t kChunk = std::size_t{1} << 18;       // stays in the cache between checksum and disk
constexpr std::size_t kOverlapped = std::size_t{1} << 20;  // from here on, with a thread for the checksum
constexpr std::uint32_t k32 = 0xFFFFFFFFu;
constexpr std::uint16_t k16 = 0xFFFFu;

constexpr std::size_t kLocalHeader = 30;
constexpr std::size_t kLocalZip64 = 20;
constexpr std::size_t kPaddingField = 4;
constexpr std::size_t kCentralHeader = 46;
constexpr std::size_t kDescriptor = 8;  // its first two fields
constexpr std::uint16_t kHasDescriptor = 8;
constexpr std::size_t kEnd = 22;
constexpr std::size_t kEnd64 = 56;
constexpr std::size_t kLocator64 = 20;

/// Little-endian numbers, one after the other.
class Bytes {
 public:
  explicit Bytes(std::size_t expected = 0) { bytes_.reserve(expected); }
  Bytes& u16(std::uint64_t value) { return number(value, 2); }
  Bytes& u32(std::uint64_t value) { return number(value, 4); }
  Bytes& u64(std::uint64_t value) { return number(value, 8); }
  Bytes& text(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  Bytes& fill(std::size_t count, char value) {
    bytes_.append(count, value);
    return *this;
  }
  const std::string& get() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  Bytes& number(std::uint64_t value, int size) {
    base::put_bytes(bytes_, value, size);
    return *this;
  }
  std::string bytes_;
};

std::uint16_t u16(const char* bytes) {
  return base::get_number<std::uint16_t>(bytes);
}
std::uint32_t u32(const char* bytes) {
  return base::get_number<std::uint32_t>(bytes);
}
std::uint64_t u64(const char* bytes) {
  return base::get_number<std::uint64_t>(bytes);
}

}  // namespace

ZipWriter::ZipWriter(base::OutputFile& file, std::string archive)
    : file_(file), archive_(std::move(archive)) {}

std::uint64_t place_record(const ZipRecord& record) {
  const std::uint64_t header = kLocalHeader + record.name.size() + kLocalZip64 + kPaddingField;
  return (record.offset + header + kAlignment - 1) / kAlignment * kAlignment;
}

std::string local_header(const ZipRecord& record, std::uint64_t data_at) {
  const bool large = record.size >= k32;
  const std::uint64_t size = data_at - record.offset;
  const std::uint64_t extra = size - kLocalHeader - record.name.size();
  Bytes header(size);
  header.text("PK\3\4").u16(large ? 45 : 20).u16(0x0800).u16(0).u16(0).u16(0x21);
  header.u32(record.crc).u32(large ? k32 : record.size).u32(large ? k32 : record.size);
  header.u16(record.name.size()).u16(extra).text(record.name);
  if (large) header.u16(1).u16(16).u64(record.size).u64(record.size);
  // The field "FB" is PyTorch's own padding: it lets readers map tensors straight from the file.
  const std::uint64_t padding = extra - (large ? kLocalZip64 : 0) - kPaddingField;
  header.u16(0x4246).u16(padding).fill(padding, 'Z');
  return header.take();
}

std::optional<std::uint64_t> record_size(const std::string& header) {
  if (header.size() < kLocalHeader || header.compare(0, 4, "PK\3\4") != 0) return std::nullopt;
  const std::uint64_t size = u32(&header[22]);
  if (size != k32) return size;
  const std::size_t extra = kLocalHeader + u16(&header[26]);
  if (header.size() < extra + kLocalZip64) return std::nullopt;
  return u64(&header[extra + 4]);
}

std::string zip_directory(const std::vector<ZipRecord>& records, std::uint64_t start) {
  std::size_t expected = kEnd;
  for (const auto& record : records) expected += kCentralHeader + record.name.size();
  Bytes directory(expected);
  for (const auto& record : records) {
    Bytes extra;
    if (record.size >= k32 || record.offset >= k32) {
      extra.u16(1).u16(24).u64(record.size).u64(record.size).u64(record.offset);
    }
    const bool large = !extra.get().empty();
    directory.text("PK\1\2").u16(large ? 45 : 20).u16(large ? 45 : 20).u16(0x0800).u16(0).u16(0).u16(0x21);
    directory.u32(record.crc).u32(large ? k32 : record.size).u32(large ? k32 : record.size);
    directory.u16(record.name.size()).u16(extra.get().size()).u16(0).u16(0).u16(0).u32(0);
    directory.u32(large ? k32 : record.offset).text(record.name).text(extra.get());
  }
  const std::uint64_t size = directory.get().size();
  const std::uint64_t count = records.size();
  if (count >= k16 || start >= k32 || size >= k32) {
    directory.text("PK\6\6").u64(kEnd64 - 12).u16(45).u16(45).u32(0).u32(0);
    directory.u64(count).u64(count).u64(size).u64(start);
    directory.text("PK\6\7").u32(0).u64(start + size).u32(1);
  }
  const std::uint64_t short_count = std::min<std::uint64_t>(count, k16);
  directory.text("PK\5\6").u16(0).u16(0).u16(short_count).u16(short_count);
  directory.u32(std::min<std::uint64_t>(size, k32)).u32(std::min<std::uint64_t>(start, k32)).u16(0);
  return directory.take();
}

void ZipWriter::record(const std::string& name, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  ZipRecord entry{archive_ + "/" + name, 0, size, file_.size()};
  const bool small = size <= kChunk;
  if (small) entry.crc = base::crc32(0, bytes, size);
  const std::string header = local_header(entry, place_record(entry));
  file_.write(header.data(), header.size());
  if (small) {
    file_.write(bytes, size);
  } else {
    if (size >= kOverlapped) {
      base::Checksum checksum(bytes, size, size);
      file_.write(bytes, size);
      entry.crc = checksum.finish();
    } else {
      // One pass over memory: each piece is still in the cache when the system copies it.
      for (std::size_t at = 0; at < size; at += kChunk) {
        const std::size_t piece = std::min(kChunk, size - at);
        entry.crc = base::crc32(entry.crc, bytes + at, piece);
        file_.write(bytes + at, piece);
      }
    }
    // The checksum in the header is known only now.
    const std::string crc = Bytes().u32(entry.crc).get();
    file_.patch(entry.offset + 14, crc.data(), crc.size());
  }
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const std::string directory = zip_directory(entries_, file_.size());
  file_.write(directory.data(), directory.size());
}

/// Finds the directory from the record at the end of the file.
ZipReader::Directory ZipReader::find_directory() const {
  const std::uint64_t file_size = file_.size();
  if (file_size < kEnd) file_.bad("it is no PyTorch file: it is too short, or was truncated");
  // Only a comment of at most 64 KiB may follow that record.
  const auto tail_size = static_cast<std::size_t>(std::min<std::uint64_t>(file_size, kEnd + k16));
  std::string tail(tail_size, '\0');
  file_.read_at(file_size - tail_size, tail.data(), tail_size);
  const auto end = tail.rfind("PK\5\6", tail_size - kEnd);
  if (end == std::string::npos) file_.bad("it is no PyTorch file (not a zip container), or was truncated");
  std::uint64_t count = u16(&tail[end + 10]);
  std::uint64_t size = u32(&tail[end + 12]);
  std::uint64_t start = u32(&tail[end + 16]);
  std::uint64_t limit = file_size - tail_size + end;  // the directory ends before this
  if (count == k16 || size == k32 || start == k32) {
    char locator[kLocator64];
    if (limit < kLocator64 + kEnd64) file_.bad("its zip64 directory is damaged");
    file_.read_at(limit - kLocator64, locator, sizeof locator);
    if (std::memcmp(locator, "PK\6\7", 4) == 0) {
      const std::uint64_t at = u64(locator + 8);
      char end64[kEnd64];
      if (at > limit - kLocator64 - kEnd64) file_.bad("its zip64 directory is damaged");
      file_.read_at(at, end64, sizeof end64);
      if (std::memcmp(end64, "PK\6\6", 4) != 0) file_.bad("its zip64 directory is damaged");
      count = u64(end64 + 32);
      size = u64(end64 + 40);
      start = u64(end64 + 48);
      limit = at;
    }
  }
  if (start > limit || size > limit - start || count > size / kCentralHeader) {
    file_.bad("its directory of records lies outside the file; it is damaged");
  }
  return {start, size, count};
}

/// Reads the next record in the directory, and moves `at` behind it.
ZipReader::Named ZipReader::read_header(const std::string& directory, std::size_t& at,
                                        std::uint64_t index) const {
  const auto damaged = [&] {
    file_.bad(c10::str("entry ", index, " of its directory of records is damaged"));
  };
  if (directory.size() - at < kCentralHeader || directory.compare(at, 4, "PK\1\2") != 0) damaged();
  const char* header = &directory[at];
  Named found;
  Record& record = found.record;
  record = {u32(header + 42), u32(header + 24), u32(header + 16), u16(header + 8), u16(header + 10)};
  found.stored = u32(header + 20);
  const std::size_t name_size = u16(header + 28);
  const std::size_t extra_size = u16(header + 30);
  const std::size_t comment_size = u16(header + 32);
  if (directory.size() - at - kCentralHeader < name_size + extra_size + comment_size) damaged();
  found.name = directory.substr(at + kCentralHeader, name_size);
  read_extra(directory, at + kCentralHeader + name_size, extra_size, found);
  at += kCentralHeader + name_size + extra_size + comment_size;
  return found;
}

/// zip64: the fields that did not fit follow in this order.
void ZipReader::read_extra(const std::string& directory, std::size_t at, std::size_t extra,
                           Named& found) const {
  const std::size_t stop = at + extra;
  while (stop - at >= 4) {
    const std::size_t field_size = u16(&directory[at + 2]);
    if (stop - at - 4 < field_size) file_.bad("the record \"" + found.name + "\" has a damaged header");
    if (u16(&directory[at]) == 1) {
      std::size_t field = at + 4;
      const std::size_t field_end = field + field_size;
      const auto take = [&](std::uint64_t& value) {
        if (value != k32) return;
        if (field_end - field < 8) file_.bad("the record \"" + found.name + "\" has a damaged zip64 header");
        value = u64(&directory[field]);
        field += 8;
      };
      take(found.record.size);
      take(found.stored);
      take(found.record.header);
    }
    at += 4 + field_size;
  }
}

ZipReader::ZipReader(const base::InputFile& file) : file_(file) {
  const Directory place = find_directory();
  std::string directory(static_cast<std::size_t>(place.size), '\0');
  file.read_at(place.start, directory.data(), directory.size());
  std::uint64_t total = 0;
  std::string archive;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < place.count; ++i) {
    const Named next = read_header(directory, at, i);
    const std::string& name = next.name;
    if (next.record.header >= place.start || next.stored > place.start - next.record.header) {
      file.bad("the record \"" + name + "\" lies outside the file; it is damaged");
    }
    total += next.stored;
    if (total > file.size()) file.bad("its records claim more bytes than the file has; it is damaged");
    if (next.record.method == 0 && next.stored != next.record.size) {
      file.bad("the record \"" + name + "\" has two different sizes; it is damaged");
    }
    const auto slash = name.find('/');
    if (slash == std::string::npos) continue;  // not PyTorch's
    if (archive.empty()) archive = name.substr(0, slash + 1);
    if (name.compare(0, archive.size(), archive) != 0) continue;
    if (!records_.emplace(name.substr(archive.size()), next.record).second) {
      file.bad("it has two records called \"" + name + "\"; it is damaged");
    }
  }
}

bool ZipReader::has(const std::string& name) const {
  return records_.count(name) != 0;
}

bool ZipReader::has_folder(const std::string& prefix) const {
  return std::any_of(records_.begin(), records_.end(),
                     [&](const auto& record) { return record.first.compare(0, prefix.size(), prefix) == 0; });
}

const ZipReader::Record& ZipReader::find(const std::string& name) const {
  const auto record = records_.find(name);
  if (record == records_.end()) file_.bad("it has no record called \"" + name + "\"; it is damaged");
  if ((record->second.flags & 1) != 0) file_.bad("the record \"" + name + "\" is encrypted");
  if (record->second.method != 0) {
    file_.bad("the record \"" + name +
              "\" is compressed, which torch.save never does; unpack the zip file and pack it again without "
              "compression");
  }
  return record->second;
}

std::uint64_t ZipReader::size(const std::string& name) const {
  return find(name).size;
}

std::uint64_t ZipReader::data_at(const std::string& name, const Record& record) const {
  char header[kLocalHeader];
  file_.read_at(record.header, header, sizeof header);
  if (std::memcmp(header, "PK\3\4", 4) != 0) {
    file_.bad("the record \"" + name + "\" has a damaged header");
  }
  return record.header + kLocalHeader + u16(header + 26) + u16(header + 28);
}

// The directory has the checksum. So has the header before the data or, as torch.save writes it, a descriptor
// behind them. torch.serialization.set_crc32_options(False) writes 0 everywhere, for no checksum.
std::uint32_t ZipReader::checksum(const std::string& name, const Record& record, std::uint64_t data) const {
  if (record.crc != 0) return record.crc;
  char header[kLocalHeader];
  file_.read_at(record.header, header, sizeof header);
  const std::uint32_t before = u32(header + 14);
  if (before != 0) return before;
  char behind[kDescriptor];
  const std::uint64_t end = data + record.size;
  if ((u16(header + 6) & kHasDescriptor) == 0 || end > file_.size() || file_.size() - end < sizeof behind)
    return 0;
  file_.read_at(end, behind, sizeof behind);
  if (std::memcmp(behind, "PK\7\10", 4) != 0) {
    file_.bad("the record \"" + name + "\" has a damaged descriptor");
  }
  return u32(behind + 4);
}

std::shared_ptr<void> ZipReader::map(const std::string& name) const {
  const Record& record = find(name);
  const std::uint64_t offset = data_at(name, record);
  if (record.size == 0 || offset % 16 != 0) return nullptr;
  return file_.map(offset, static_cast<std::size_t>(record.size));
}

void ZipReader::read(const std::string& name, void* data) const {
  const Record& record = find(name);
  const std::uint64_t offset = data_at(name, record);
  auto* bytes = static_cast<char*>(data);
  std::uint32_t crc = 0;
  const auto size = static_cast<std::size_t>(record.size);
  if (size >= kOverlapped) {
    base::Checksum checksum(bytes, size, 0);
    for (std::size_t at = 0; at < size;) {
      const std::size_t piece = std::min(kOverlapped, size - at);
      file_.read_at(offset + at, bytes + at, piece);
      at += piece;
      checksum.advance(at);
    }
    crc = checksum.finish();
  } else {
    file_.read_at(offset, bytes, size);
    crc = base::crc32(0, bytes, size);
  }
  const std::uint32_t expected = checksum(name, record, offset);
  if (expected != 0 && expected != crc) {
    file_.bad("the record \"" + name + "\" does not match its checksum; the file is damaged");
  }
}

std::string ZipReader::read(const std::string& name) const {
  std::string bytes(static_cast<std::size_t>(size(name)), '\0');
  read(name, bytes.data());
  return bytes;
}

}  // namespace torchtap::storage::detail
