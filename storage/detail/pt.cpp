// Connects zip container, pickle and torchtap's own records.
#include <algorithm>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/format.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/pt.hpp>
#include <torchtap/storage/detail/unpickle.hpp>
#include <torchtap/storage/detail/zip.hpp>

namespace torchtap::storage::detail {
namespace {

/// Throws for an empty file and for formats of PyTorch that are not zip containers, and says what to do.
void check_kind(const base::InputFile& file) {
  char head[16] = {};
  file.read_at(0, head, static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), sizeof head)));
  if (file.size() == 0) file.bad("it is empty");
  // The number 0x1950a86a20f9469cfc6c, pickled.
  const char legacy[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  const bool pickled = head[0] == '\x80';
  char tar[5] = {};
  if (file.size() >= 262) file.read_at(257, tar, sizeof tar);
  if ((pickled && std::memcmp(head + 2, legacy, sizeof legacy - 1) == 0) ||
      std::memcmp(tar, "ustar", 5) == 0) {
    file.bad(
        "it is in the format that torch.save had before 1.6; in Python, save it again: "
        "torch.save(torch.load(path), path)");
  }
  if (pickled) file.bad("it is a bare pickle, not a file of torch.save");
}

constexpr std::int64_t kFormat = 1;  // of torchtap's additions to PyTorch's format
constexpr const char* kFormatRecord = "torchtap/format";

/// Throws for a file of a newer format. PyTorch's own files have no such record.
void check_torchtap(const base::InputFile& file, const ZipReader& records) {
  if (!records.has(kFormatRecord)) return;
  const std::string text = records.size(kFormatRecord) < 16 ? records.read(kFormatRecord) : "";
  std::int64_t format = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') format = 10 * format + (c - '0');
  }
  check_format(file, format, kFormat);
}

std::string state_record(std::size_t slot, const char* part) {
  return "torchtap/" + std::to_string(slot) + "/" + part;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& fixed_records() {
  // Never destroyed: threads may save while the program ends.
  static const std::vector<std::pair<std::string, std::string>>& records =
      *new const std::vector<std::pair<std::string, std::string>>{
          {"byteorder", "little"}, {"version", "3\n"}, {kFormatRecord, std::to_string(kFormat) + "\n"}};
  return records;
}

void write_value(base::OutputFile& file, const core::Value& value,
                 const std::vector<core::SavedSink>& state) {
  ZipWriter zip(file);
  const std::string pickled = pickle(value, [&](const std::string& name, const void* data, std::size_t size) {
    zip.record(name, data, size);
  });
  zip.record("data.pkl", pickled);
  for (const auto& [name, bytes] : fixed_records()) zip.record(name, bytes);
  for (std::size_t i = 0; i < state.size(); ++i) {
    zip.record(state_record(i, "recipe"), state[i].recipe);
    zip.record(state_record(i, "bytes"), state[i].bytes);
  }
  zip.finish();
}

core::Value read_value(const base::InputFile& file, const LoadOptions& options) {
  check_kind(file);
  const ZipReader records(file);
  check_torchtap(file, records);
  if (!records.has("data.pkl")) file.bad("it is a zip file, but not one of torch.save: it has no data.pkl");
  if (records.has("byteorder") && records.read("byteorder") != "little") {
    file.bad("its tensors are not little-endian; in Python, load it on this machine and save it again");
  }
  return unpickle(file, records, options);
}

std::vector<core::SavedSink> read_state(const base::InputFile& file) {
  const ZipReader records(file);
  check_torchtap(file, records);
  if (records.has(state_record(0, "recipe")) && !records.has(kFormatRecord)) {
    file.bad(
        "the state of its reduction has no format number: it was written by a torchtap before 0.1.0. Its "
        "results can be read, but not merged or continued");
  }
  std::vector<core::SavedSink> state;
  for (std::size_t i = 0; records.has(state_record(i, "recipe")); ++i) {
    state.push_back({records.read(state_record(i, "recipe")), records.read(state_record(i, "bytes"))});
  }
  // Names in the directory of records have no checksum.
  if (records.has(state_record(state.size(), "bytes")))
    file.bad("the state of its reduction has no recipe; it is damaged");
  return state;
}

}  // namespace torchtap::storage::detail
