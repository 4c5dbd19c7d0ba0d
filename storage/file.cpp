#include <algorithm>
#include <cstring>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/disk.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/pickle.hpp>
#include <torchtap/storage/pt.hpp>
#include <torchtap/storage/zip.hpp>

namespace torchtap::storage {
namespace detail {
namespace {

/// Files that PyTorch knows and that are no zip container: says what to do with them.
void check_kind(const InputFile& file) {
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
        "it is in the format that torch.save had before 1.6; in Python, save it anew: "
        "torch.save(torch.load(path), path)");
  }
  if (pickled) file.bad("it is a bare pickle, not a file of torch.save");
}

std::string state_record(std::size_t slot, const char* part) {
  return "torchtap/" + std::to_string(slot) + "/" + part;
}

}  // namespace

void write_value(OutputFile& file, const core::Value& value, const std::vector<core::SavedSink>& state) {
  ZipWriter zip(file);
  const std::string pickled = pickle(value, [&](const std::string& name, const void* data, std::size_t size) {
    zip.record(name, data, size);
  });
  zip.record("data.pkl", pickled);
  zip.record("byteorder", "little");
  zip.record("version", "3\n");
  for (std::size_t i = 0; i < state.size(); ++i) {
    zip.record(state_record(i, "recipe"), state[i].recipe);
    zip.record(state_record(i, "bytes"), state[i].bytes);
  }
  zip.finish();
}

core::Value read_value(const InputFile& file, bool mmap) {
  check_kind(file);
  const ZipReader records(file);
  if (records.has("constants.pkl") || records.has_folder("code/")) {
    file.bad(
        "it is a TorchScript archive, as C++'s torch::save and torch.jit.save write them; load it with "
        "torch::load or torch::jit::load, and save tensors with storage::save_value or torch.save");
  }
  if (!records.has("data.pkl")) file.bad("it is a zip file, but none of torch.save: it has no data.pkl");
  if (records.has("byteorder") && records.read("byteorder") != "little") {
    file.bad("its tensors are not little-endian; in Python, load it on this machine and save it anew");
  }
  return unpickle(file, records, mmap);
}

std::vector<core::SavedSink> read_state(const InputFile& file) {
  const ZipReader records(file);
  std::vector<core::SavedSink> state;
  for (std::size_t i = 0; records.has(state_record(i, "recipe")); ++i) {
    state.push_back({records.read(state_record(i, "recipe")), records.read(state_record(i, "bytes"))});
  }
  return state;
}

}  // namespace detail

void save_value(const std::string& path, const core::Value& value, const SaveOptions& options) {
  const std::string call = "save_value";
  detail::check_value(call, "the value", value);
  const detail::Target target = detail::resolve(call, path, options.mkdir());
  try {
    detail::check_replaceable(call, target.path(), options.overwrite());
    detail::sweep(target);
    detail::Staging staging(call, target, detail::Staging::Kind::file);
    detail::OutputFile file(call, staging.path(), staging.duplicate());
    detail::write_value(file, value);
    file.close(options.sync());
    staging.put(options.overwrite(), options.sync());
  } catch (...) {
    target.undo();
    throw;
  }
}

core::Value load_value(const std::string& path, const LoadOptions& options) {
  return detail::read_value(detail::InputFile::open("load_value", path), options.mmap());
}

}  // namespace torchtap::storage
