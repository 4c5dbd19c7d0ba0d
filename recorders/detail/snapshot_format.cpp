// Writes and checks the header of a snapshot.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <istream>
#include <ostream>
#include <utility>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/recorders/detail/snapshot_format.hpp>

namespace torchtap::recorders::detail {
namespace {

constexpr char kMagic[8] = {'t', 'a', 'p', 's', 'n', 'a', 'p', '\0'};
constexpr std::uint32_t kFormat = 2;
constexpr std::size_t kHeader = sizeof kMagic + 4 + 8 + 4;
constexpr std::uint64_t kPiece = 1 << 20;

/// Detects a damaged file before the sizes in it are used.
std::uint32_t checksum(const std::string& bytes) {
  return base::crc32(0, bytes.data(), bytes.size());
}

}  // namespace

void bad_snapshot(const std::string& call, const std::string& reason) {
  TORCH_CHECK_VALUE(false, call, ": the snapshot cannot be read: ", reason, ". Nothing was changed.");
}

void write_snapshot(std::ostream& stream, const std::string& payload) {
  std::string header(kMagic, sizeof kMagic);
  base::put_bytes(header, kFormat, 4);
  base::put_bytes(header, payload.size(), 8);
  base::put_bytes(header, checksum(payload), 4);
  stream.write(header.data(), static_cast<std::streamsize>(header.size()));
  stream.write(payload.data(), static_cast<std::streamsize>(payload.size()));
}

SnapshotReader::SnapshotReader(const Snapshot& snapshot)
    : format_(snapshot.format), stream_(snapshot.payload), archive_(stream_) {}

std::uint64_t SnapshotReader::number() {
  std::uint64_t number = 0;
  archive_(number);
  return number;
}

std::string SnapshotReader::text() {
  std::string text;
  archive_(text);
  return text;
}

std::vector<at::Tensor> SnapshotReader::tensors() {
  std::vector<at::Tensor> tensors;
  archive_(tensors);
  return tensors;
}

Snapshot read_snapshot(const std::string& call, std::istream& stream) {
  char header[kHeader] = {};
  stream.read(header, sizeof kMagic);
  // Snapshots from before the format number have a digit in place of the zero byte.
  if (!stream || std::memcmp(header, kMagic, sizeof kMagic - 1) != 0) {
    bad_snapshot(call, "it is not the snapshot of a recorder");
  }
  if (header[sizeof kMagic - 1] != '\0') {
    bad_snapshot(call, "it was written by a torchtap before 0.1.0, whose snapshots had no format number");
  }
  stream.read(header + sizeof kMagic, 4);
  if (!stream) bad_snapshot(call, "it ends too early");
  const auto format = base::get_bytes(header + sizeof kMagic, 4);
  const std::string unreadable = base::unreadable_format(static_cast<std::int64_t>(format), kFormat);
  if (!unreadable.empty()) bad_snapshot(call, unreadable);
  stream.read(header + sizeof kMagic + 4, 12);
  if (!stream) bad_snapshot(call, "it ends too early");
  const std::uint64_t size = base::get_bytes(header + sizeof kMagic + 4, 8);
  const std::uint64_t sum = base::get_bytes(header + sizeof kMagic + 12, 4);
  // In pieces, because the size may be wrong.
  std::string payload;
  while (payload.size() < size) {
    const std::size_t before = payload.size();
    const auto piece = static_cast<std::size_t>(std::min(size - before, kPiece));
    payload.resize(before + piece);
    stream.read(payload.data() + before, static_cast<std::streamsize>(piece));
    if (!stream) bad_snapshot(call, "it ends too early");
  }
  if (checksum(payload) != sum) bad_snapshot(call, "its checksum does not match; it is damaged");
  return {std::move(payload), static_cast<std::uint32_t>(format)};
}

}  // namespace torchtap::recorders::detail
