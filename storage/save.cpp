// Saves a recording as a whole.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/detail/manifest.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/pt.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/save_entries.hpp>
#include <torchtap/storage/detail/sync_queue.hpp>
#include <torchtap/storage/detail/utf8.hpp>
#include <torchtap/storage/save.hpp>

namespace torchtap::storage {
namespace detail {
namespace {

void check_name(const std::string& where, const char* field, const std::string& name) {
  TORCH_CHECK_VALUE(is_name(name), "save: the ", field, " of ", where,
                    " is not UTF-8, or contains a zero byte; a manifest cannot hold it. Rename it.");
}

void check_entry(const Entry& entry, std::size_t index) {
  const std::string where = "entry " + std::to_string(index);
  check_name(where, "path", entry.path);
  for (const auto& alias : entry.aliases) check_name(where, "alias", alias);
  check_name(where, "type", entry.type);
  check_name(where, "kind", entry.kind);
  check_name(where, "reduction", entry.reduction);
  check_name(where, "note", entry.note);
  const std::string name = named(index, entry.path);
  TORCH_CHECK_VALUE(entry.samples >= 0, "save: ", name, " claims ", entry.samples,
                    " samples; expected 0 or more.");
  TORCH_CHECK_VALUE(entry.samples > 0 || is_empty(entry.value), "save: ", name,
                    " claims 0 samples but holds ", entry.value.describe(), "; count its samples.");
  TORCH_CHECK_VALUE(!entry.reduction.empty() || !entry.value.is_list() ||
                        static_cast<std::int64_t>(entry.value.list().size()) == entry.samples,
                    "save: ", name, " claims ", entry.samples, " samples but holds ", entry.value.describe(),
                    "; count each item of the list as a sample, or name the reduction that made the list.");
  check_value("save", name, entry.value);
}

/// Throws unless `path` is missing, empty, or a recording that may be replaced.
void check_place(const std::string& path, bool overwrite) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    base::io_error("save", "look at", path, errno);
  }
  TORCH_CHECK_VALUE(S_ISDIR(status.st_mode), "save: \"", path,
                    "\" is a file, but a recording is a directory; name a directory.");
  base::check_exchangeable("save", path);
  const auto names = base::names_in("save", path);
  if (names.empty()) return;
  std::vector<std::string> foreign;
  std::copy_if(names.begin(), names.end(), std::back_inserter(foreign),
               [](const std::string& name) { return !is_recording_file(name); });
  if (foreign.size() > 5) foreign.resize(5);
  const bool recording = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == kManifest || name == kJournal;
  });
  TORCH_CHECK_VALUE(recording || !foreign.empty(), "save: \"", path,
                    "\" holds .pt files but no manifest.json, so it is not a recording that may be replaced. "
                    "Choose another directory, or empty this one.");
  TORCH_CHECK_VALUE(foreign.empty(), "save: \"", path, "\" holds files that are no part of a recording (",
                    base::quoted(foreign), " …), and replacing the directory would lose them. ",
                    "Choose another directory, for example \"", path, "/recording\" with mkdir(true).");
  TORCH_CHECK_VALUE(overwrite, "save: \"", path,
                    "\" holds a recording already. Choose another directory, or pass "
                    "SaveOptions().overwrite(true).");
  TORCH_CHECK_VALUE(!is_spooling(path), "save: \"", path,
                    "\" is being written to by a recorder that spools; choose another directory.");
}

using Each = std::function<void(std::size_t index, EntryWriter& writer)>;

/// Writes the files of entries to a staged folder.
class Writer final : public EntryWriter {
 public:
  Writer(const base::Staging& staging, bool sync) : staging_(staging), files_("save", sync) {}

  void write(const Entry& entry) override {
    const std::size_t index = manifest_.entries.size();
    check_entry(entry, index);
    Description part = describe(entry, index);
    if (entry.samples > 0) {
      part.file = std::to_string(index) + ".pt";
      base::OutputFile file = files_.create(staging_, part.file);
      write_value(file, entry.value, entry.state);
      part.bytes = static_cast<std::int64_t>(file.size());
      files_.add(std::move(file));
    }
    manifest_.entries.push_back(std::move(part));
  }

  void write(const ShardedEntry& entry) override {
    const std::size_t index = manifest_.entries.size();
    SpooledEntry spooled{entry, {}, entry.not_recorded, entry.note};
    std::map<std::int64_t, std::int64_t> numbers;  // of the next shard of each slot
    for (const ShardToSave& shard : entry.shards) {
      ShardName name{static_cast<std::int64_t>(index), std::nullopt, numbers[shard.info.slot]++};
      if (shard.info.slot >= 0) name.slot = shard.info.slot;
      ShardInfo info = shard.info;
      info.file = name.stem() + ".pt";
      base::OutputFile file = files_.create(staging_, info.file);
      shard.write(file);
      info.bytes = static_cast<std::int64_t>(file.size());
      files_.add(std::move(file));
      spooled.shards.push_back(std::move(info));
    }
    manifest_.entries.push_back(describe(spooled, index));
  }

  /// Writes the manifest and waits for the disk.
  void finish() {
    manifest_.created = utc_now();
    manifest_.count = static_cast<std::int64_t>(manifest_.entries.size());
    const std::string json = to_json(std::move(manifest_));
    base::OutputFile file = files_.create(staging_, kManifest);
    file.write(json.data(), json.size());
    files_.add(std::move(file));
    files_.wait();
  }

 private:
  const base::Staging& staging_;
  SyncQueue files_;
  Manifest manifest_;
};

}  // namespace

void save_entries(const std::string& directory, std::size_t count, const Each& each,
                  const SaveOptions& options) {
  const base::Target target = base::resolve("save", directory, options.mkdir());
  try {
    base::put_back(target, is_recording_file, kManifest);
    struct stat status {};
    TORCH_CHECK_VALUE(options.mkdir() || ::lstat(target.path().c_str(), &status) == 0, "save: \"", directory,
                      "\" does not exist. Create the directory first, or pass SaveOptions().mkdir(true).");
    check_place(target.path(), options.overwrite());
    base::sweep(target, is_recording_file);
    base::Staging staging("save", target, is_recording_file);
    Writer writer(staging, options.sync());
    for (std::size_t i = 0; i < count; ++i) each(i, writer);
    writer.finish();
    staging.put(options.overwrite(), options.sync());
  } catch (...) {
    target.undo();
    throw;
  }
}

}  // namespace detail

void save(const std::string& directory, const std::vector<Entry>& entries, const SaveOptions& options) {
  for (std::size_t i = 0; i < entries.size(); ++i) detail::check_entry(entries[i], i);
  detail::save_entries(
      directory, entries.size(),
      [&](std::size_t i, detail::EntryWriter& writer) { writer.write(entries[i]); }, options);
}

void save(const std::string& directory, std::size_t count, const std::function<Entry(std::size_t)>& make,
          const SaveOptions& options) {
  detail::save_entries(
      directory, count, [&](std::size_t i, detail::EntryWriter& writer) { writer.write(make(i)); }, options);
}

}  // namespace torchtap::storage
