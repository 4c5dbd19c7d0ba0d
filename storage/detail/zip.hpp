#pragma once

/// Writes and reads the zip container of a `.pt` file, as far as PyTorch uses it: stored (uncompressed)
/// records under one archive name, their data aligned to 64 bytes, zip64 where sizes need it.
///
/// Does not use `caffe2::serialize::PyTorchStreamWriter` and `…Reader`: that reader compares no checksums and
/// allocates any size that a file claims, and that writer throws from its destructor when the disk is full.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/disk.hpp>

namespace torchtap::storage::detail {

/// A record of a container that is being written.
struct ZipRecord {
  std::string name;  // including the archive's
  std::uint32_t crc = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;  // of its header
};

/// The offset of the data of a record: aligned to 64 bytes, with room for a header of either size (zip64 or
/// not).
std::uint64_t place_record(const ZipRecord& record);
/// The header, padded to reach from `record.offset` to `data_at`.
std::string local_header(const ZipRecord& record, std::uint64_t data_at);
/// The size of the record in a header that `local_header` made; nothing if `header` is not one.
std::optional<std::uint64_t> record_size(const std::string& header);
/// The directory at the end of the container; it begins at offset `start`.
std::string zip_directory(const std::vector<ZipRecord>& records, std::uint64_t start);

/// Writes records one after the other. The destructor writes nothing: without `finish` a container is
/// incomplete, and readers refuse it.
class ZipWriter {
 public:
  /// `file` must outlive the writer. Records are called "`archive`/name".
  explicit ZipWriter(base::OutputFile& file, std::string archive = "archive");

  void record(const std::string& name, const void* data, std::size_t size);
  void record(const std::string& name, const std::string& bytes) { record(name, bytes.data(), bytes.size()); }
  /// Writes the directory of records.
  void finish();

 private:
  base::OutputFile& file_;
  std::string archive_;
  std::vector<ZipRecord> entries_;
};

/// Reads records by name. Every offset and size in the file is checked before it is used: records lie inside
/// the file, and together they are not larger than the file.
class TORCHTAP_API ZipReader {
 public:
  /// Throws `c10::ValueError` if `file` is not such a container or is damaged. `file` must outlive the
  /// reader.
  explicit ZipReader(const base::InputFile& file);

  bool has(const std::string& name) const;
  /// The size of a record. Throws `c10::ValueError` if there is none of that name.
  std::uint64_t size(const std::string& name) const;
  /// Reads `size(name)` bytes. Throws `c10::ValueError` if they do not match their checksum.
  void read(const std::string& name, void* data) const;
  std::string read(const std::string& name) const;
  /// The bytes of a record in mapped memory, which lives as long as the pointer does; nothing is read yet,
  /// and no checksum is compared. Null for a record that is empty or not aligned to 16 bytes.
  std::shared_ptr<void> map(const std::string& name) const;
  /// Whether some record's name starts with `prefix`.
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
    std::string name;  // including the archive's
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
  /// The offset of the bytes of a record.
  std::uint64_t data_at(const std::string& name, const Record& record) const;
  /// The checksum that the file has for a record; 0 if it has none.
  std::uint32_t checksum(const std::string& name, const Record& record, std::uint64_t data) const;

  const base::InputFile& file_;
  std::unordered_map<std::string, Record> records_;
};

}  // namespace torchtap::storage::detail
