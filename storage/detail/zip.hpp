#pragma once

/// The zip container of a `.pt` file, as much of it as PyTorch uses: stored (uncompressed) records under one
/// archive name, their data aligned to 64 bytes, zip64 where sizes need it.
///
/// Own code rather than `caffe2::serialize::PyTorchStreamWriter` and `…Reader`: the reader checks no checksum
/// and allocates whatever a file claims; the writer throws from its destructor when the disk is full.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torchtap/core/api.hpp>
#include <torchtap/storage/detail/disk.hpp>

namespace torchtap::storage::detail {

/// A record of a container that is being written.
struct ZipRecord {
  std::string name;  // with the archive's
  std::uint32_t crc = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;  // of its header
};

/// Where the data of a record goes: aligned to 64 bytes, behind room for its header whatever its size will
/// be.
std::uint64_t place_record(const ZipRecord& record);
/// The header, which fills what is between `record.offset` and `data_at`.
std::string local_header(const ZipRecord& record, std::uint64_t data_at);
/// The size in a header that `local_header` wrote; nothing if `header` is none.
std::optional<std::uint64_t> record_size(const std::string& header);
/// The directory, which ends the container; it begins at `start`.
std::string zip_directory(const std::vector<ZipRecord>& records, std::uint64_t start);

/// Writes records one after the other. Nothing happens on destruction: a container without `finish` is
/// incomplete, and no reader takes it for whole.
class ZipWriter {
 public:
  /// `file` must outlive the writer. Records are called "`archive`/name".
  explicit ZipWriter(OutputFile& file, std::string archive = "archive");

  void record(const std::string& name, const void* data, std::size_t size);
  void record(const std::string& name, const std::string& bytes) { record(name, bytes.data(), bytes.size()); }
  /// Writes the directory of records.
  void finish();

 private:
  OutputFile& file_;
  std::string archive_;
  std::vector<ZipRecord> entries_;
};

/// Reads records by name. Every offset and size in the file is checked before it is used: records lie inside
/// the file, and all of them together are not larger than it.
class TORCHTAP_API ZipReader {
 public:
  /// Throws `c10::ValueError` if `file` is no such container, or a damaged one. `file` must outlive the
  /// reader.
  explicit ZipReader(const InputFile& file);

  bool has(const std::string& name) const;
  /// The size of a record. Throws `c10::ValueError` if there is none of that name.
  std::uint64_t size(const std::string& name) const;
  /// Reads `size(name)` bytes. Throws `c10::ValueError` if they do not match their checksum.
  void read(const std::string& name, void* data) const;
  std::string read(const std::string& name) const;
  /// The bytes of a record in mapped memory, which lives as long as the pointer does; nothing is read yet,
  /// and no checksum looked at. Null for a record that is empty or not aligned to 16 bytes.
  std::shared_ptr<void> map(const std::string& name) const;
  /// Does any record's name start so?
  bool has_folder(const std::string& prefix) const;

 private:
  struct Record {
    std::uint64_t header = 0;
    std::uint64_t size = 0;
    std::uint32_t crc = 0;
    std::uint16_t flags = 0;
    std::uint16_t method = 0;
  };
  struct Named {
    std::string name;  // with the archive's
    Record record;
    std::uint64_t stored = 0;  // the bytes that it takes in the file
  };
  struct Directory {
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    std::uint64_t count = 0;  // of records
  };
  Directory find_directory() const;
  Named read_header(const std::string& directory, std::size_t& at, std::uint64_t index) const;
  void read_extra(const std::string& directory, std::size_t at, std::size_t extra, Named& found) const;
  const Record& find(const std::string& name) const;
  /// Where the bytes of a record begin.
  std::uint64_t data_at(const std::string& name, const Record& record) const;
  /// What the file says that the checksum is; 0 if it says nowhere.
  std::uint32_t checksum(const std::string& name, const Record& record, std::uint64_t data) const;

  const InputFile& file_;
  std::unordered_map<std::string, Record> records_;
};

}  // namespace torchtap::storage::detail
