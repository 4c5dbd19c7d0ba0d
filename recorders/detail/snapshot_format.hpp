#pragma once

/// The file format of snapshots: a header that describes the recorder, and its bytes.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <sstream>
#include <string>
#include <vector>

#include <torchtap/core/archive.hpp>

namespace torchtap::recorders::detail {

/// Writes a header and `payload`. Check the stream afterwards.
void write_snapshot(std::ostream& stream, const std::string& payload);

/// What `read_snapshot` read.
struct Snapshot {
  std::string payload;
  std::uint32_t format = 0;
};

/// Reads a snapshot of `write_snapshot`, up to its end and no further. Throws `c10::ValueError` that begins
/// with `call` if there is no snapshot, if it is damaged or cut off, or if a newer torchtap wrote it.
Snapshot read_snapshot(const std::string& call, std::istream& stream);

/// Throws `c10::ValueError`: the snapshot cannot be read, for this reason.
[[noreturn]] void bad_snapshot(const std::string& call, const std::string& reason);

/// Reads the payload of a snapshot.
class SnapshotReader {
 public:
  explicit SnapshotReader(const Snapshot& snapshot);

  std::uint32_t format() const noexcept { return format_; }
  core::InputArchive& archive() noexcept { return archive_; }
  std::uint64_t number();
  std::string text();
  std::vector<at::Tensor> tensors();

 private:
  std::uint32_t format_;
  std::istringstream stream_;
  core::InputArchive archive_;
};

}  // namespace torchtap::recorders::detail
