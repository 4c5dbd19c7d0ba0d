#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <torchtap/core/error.hpp>
#include <torchtap/storage/disk.hpp>
#include <torchtap/storage/journal.hpp>
#include <torchtap/storage/pickle.hpp>
#include <torchtap/storage/pt.hpp>
#include <torchtap/storage/recording.hpp>
#include <unordered_set>
#include <utility>

#ifndef TORCHTAP_VERSION
#define TORCHTAP_VERSION "unknown"
#endif

namespace torchtap::storage {
namespace detail {

constexpr std::int64_t kSchema = 2;
constexpr std::int64_t kUnspooledSchema = 1;  // what recordings without shards are still written as
constexpr std::uint64_t kLargestManifest = std::uint64_t{1} << 30;
constexpr int kDeepestManifest = 16;

/// An open directory. Held open, it stays the directory that was loaded, whatever takes its name.
struct Folder {
  std::string path;
  Descriptor fd;  // none for a single file
  LoadOptions options;
};

/// An entry as the manifest has it.
struct Description {
  std::int64_t index = 0;
  std::string path;
  std::vector<std::string> aliases;
  std::string type;
  std::string kind;
  std::int64_t samples = 0;
  std::string reduction;
  std::string holds;
  std::int64_t number = 0;
  std::vector<std::string> keys;
  std::string dtype;
  std::vector<std::int64_t> shape;
  bool ragged = false;
  std::string file;
  std::int64_t bytes = 0;
  std::vector<ShardInfo> shards;  // instead of a file
  std::int64_t dropped = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(index), CEREAL_NVP(path), CEREAL_NVP(aliases), CEREAL_NVP(type), CEREAL_NVP(kind),
            CEREAL_NVP(samples), CEREAL_NVP(reduction), CEREAL_NVP(holds), CEREAL_NVP(number),
            CEREAL_NVP(keys), CEREAL_NVP(dtype), CEREAL_NVP(shape), CEREAL_NVP(ragged), CEREAL_NVP(file),
            CEREAL_NVP(bytes));
    if constexpr (Archive::is_loading::value) {
      const char* next = archive.getNodeName();
      if (next == nullptr || std::string(next) != "shards") return;
    } else if (shards.empty()) {
      return;
    }
    archive(CEREAL_NVP(shards), CEREAL_NVP(dropped));
  }
};

namespace {

struct Manifest {
  std::int64_t schema = kSchema;
  std::string library = TORCHTAP_VERSION;
  std::string created;
  std::int64_t count = 0;
  std::vector<Description> entries;
};

const char* holds(const core::Value& value) {
  switch (value.kind()) {
    case core::Value::Kind::none:
      return "none";
    case core::Value::Kind::tensor:
      return value.tensor().defined() ? "tensor" : "none";
    case core::Value::Kind::list:
      return "list";
    case core::Value::Kind::dict:
      return "dict";
    case core::Value::Kind::text:
      return "text";
  }
  return "none";
}

bool is_empty(const core::Value& value) {
  return std::string(holds(value)) == "none" || (value.is_list() && value.list().empty()) ||
         (value.is_dict() && value.dict().empty());
}

/// Calls `visit` with every tensor in `value`.
template <class Visit>
void each_tensor(const core::Value& value, const Visit& visit) {
  if (value.is_tensor() && value.tensor().defined()) visit(value.tensor());
  if (value.is_list()) {
    for (const auto& item : value.list()) each_tensor(item, visit);
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) each_tensor(item, visit);
  }
}

Description describe(const Entry& entry, std::size_t index) {
  Description part;
  part.index = static_cast<std::int64_t>(index);
  part.path = entry.path;
  part.aliases = entry.aliases;
  part.type = entry.type;
  part.kind = entry.kind;
  part.samples = entry.samples;
  part.reduction = entry.reduction;
  part.holds = holds(entry.value);
  if (part.holds == "tensor" || part.holds == "text") part.number = 1;
  if (part.holds == "list") part.number = static_cast<std::int64_t>(entry.value.list().size());
  if (part.holds == "dict") {
    part.number = static_cast<std::int64_t>(entry.value.dict().size());
    for (const auto& [key, item] : entry.value.dict()) part.keys.push_back(key);
  }
  bool first = true;
  each_tensor(entry.value, [&](const at::Tensor& tensor) {
    merge_shape(first, part.dtype, part.shape, part.ragged, dtype_name(tensor.scalar_type()), tensor.sizes());
  });
  return part;
}

void check_name(const std::string& where, const char* field, const std::string& name) {
  TORCH_CHECK_VALUE(is_utf8(name) && name.find('\0') == std::string::npos, "save: the ", field, " of ", where,
                    " is not UTF-8, or contains a zero byte; a manifest cannot hold it. Rename it.");
}

/// "entry 3 ("layer1.conv")".
std::string named(std::size_t index, const std::string& path) {
  return c10::str("entry ", index, " (\"", path, "\")");
}

void check_entry(const Entry& entry, std::size_t index) {
  const std::string where = c10::str("entry ", index);
  check_name(where, "path", entry.path);
  for (const auto& alias : entry.aliases) check_name(where, "alias", alias);
  check_name(where, "type", entry.type);
  check_name(where, "kind", entry.kind);
  check_name(where, "reduction", entry.reduction);
  const std::string name = named(index, entry.path);
  TORCH_CHECK_VALUE(entry.samples >= 0, "save: ", name, " claims ", entry.samples, " samples.");
  TORCH_CHECK_VALUE(entry.samples > 0 || is_empty(entry.value), "save: ", name,
                    " claims 0 samples but holds ", entry.value.describe(), "; count its samples.");
  check_value("save", name, entry.value);
}

/// The directory may be taken: it is missing, empty, or a recording that may be replaced.
void check_place(const std::string& path, bool overwrite) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;
  TORCH_CHECK_VALUE(S_ISDIR(status.st_mode), "save: \"", path,
                    "\" is a file; a recording is a directory, name one.");
  struct stat here {};
  TORCH_CHECK_VALUE(
      ::stat(".", &here) != 0 || here.st_dev != status.st_dev || here.st_ino != status.st_ino, "save: \"",
      path, "\" is the current directory, which cannot be replaced as a whole; name a directory in it.");
  const auto names = list("save", path);
  if (names.empty()) return;
  std::vector<std::string> foreign;
  std::copy_if(names.begin(), names.end(), std::back_inserter(foreign),
               [](const std::string& name) { return !is_recording_file(name); });
  if (foreign.size() > 5) foreign.resize(5);
  const bool recording = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "manifest.json" || name == kJournal;
  });
  TORCH_CHECK_VALUE(recording || !foreign.empty(), "save: \"", path,
                    "\" holds .pt files but no manifest.json, so it is not a recording that may be replaced. "
                    "Choose another directory, or empty this one.");
  TORCH_CHECK_VALUE(foreign.empty(), "save: \"", path, "\" holds files that are no part of a recording (",
                    core::quoted(foreign), " …), and replacing the directory would lose them. ",
                    "Choose another directory, for example \"", path, "/recording\" with mkdir(true).");
  TORCH_CHECK_VALUE(overwrite, "save: \"", path,
                    "\" holds a recording already. Choose another directory, or pass "
                    "SaveOptions().overwrite(true).");
  TORCH_CHECK_VALUE(!is_spooling(path), "save: \"", path,
                    "\" is being written to by a recorder that spools; choose another directory.");
}

Description describe(const SpooledEntry& entry, std::size_t index) {
  Description part;
  part.index = static_cast<std::int64_t>(index);
  part.path = entry.path;
  part.aliases = entry.aliases;
  part.type = entry.type;
  part.kind = entry.kind;
  part.samples = entry.samples();
  part.shards = entry.shards;
  part.dropped = entry.dropped;
  part.holds = part.samples == 0 ? "none" : "list";
  bool first = true;
  for (const auto& shard : entry.shards) {
    part.bytes += shard.bytes;
    if (shard.slot < 0) {
      part.number += shard.samples;
    } else {
      part.holds = "dict";
      const std::string key = std::to_string(shard.slot);
      if (std::find(part.keys.begin(), part.keys.end(), key) == part.keys.end()) part.keys.push_back(key);
    }
    if (shard.dtype.empty()) continue;
    merge_shape(first, part.dtype, part.shape, part.ragged, shard.dtype, shard.shape);
    if (shard.ragged) {
      part.ragged = true;
      part.shape.clear();
    }
  }
  if (part.holds == "dict") {
    std::sort(part.keys.begin(), part.keys.end(),
              [](const auto& a, const auto& b) { return std::stoll(a) < std::stoll(b); });
    part.number = static_cast<std::int64_t>(part.keys.size());
  }
  return part;
}

std::string to_json(Manifest manifest) {
  const bool spooled = std::any_of(manifest.entries.begin(), manifest.entries.end(),
                                   [](const auto& entry) { return !entry.shards.empty(); });
  manifest.schema = spooled ? kSchema : kUnspooledSchema;
  std::ostringstream stream;
  {
    cereal::JSONOutputArchive archive(stream);
    archive(cereal::make_nvp("schema", manifest.schema), cereal::make_nvp("library", manifest.library),
            cereal::make_nvp("created", manifest.created), cereal::make_nvp("count", manifest.count),
            cereal::make_nvp("entries", manifest.entries));
  }
  return stream.str() + "\n";
}

Manifest from_json(const InputFile& file) {
  const std::string text = file.read_all(kLargestManifest);
  if (nests_deeper(text, kDeepestManifest)) file.bad("it nests deeper than any manifest; it is damaged");
  Manifest manifest;
  try {
    std::istringstream stream(text);
    cereal::JSONInputArchive archive(stream);
    archive(cereal::make_nvp("schema", manifest.schema));
    if (manifest.schema >= 1 && manifest.schema <= kSchema) {
      archive(cereal::make_nvp("library", manifest.library), cereal::make_nvp("created", manifest.created),
              cereal::make_nvp("count", manifest.count), cereal::make_nvp("entries", manifest.entries));
    }
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception&) {  // cereal::Exception, rapidjson's among them; std::length_error
    file.bad(
        "it is no manifest of a recording, or damaged: it is no JSON, or a field is missing or of another type");
  }
  if (manifest.schema < 1 || manifest.schema > kSchema) {
    file.bad(c10::str("it has schema version ", manifest.schema, ", and this torchtap (", TORCHTAP_VERSION,
                      ") reads versions 1 to ", kSchema, "; update torchtap"));
  }
  return manifest;
}

/// A name of a file in the folder itself.
bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos;
}

void check_shards(const InputFile& file, const std::string& name, const Description& part,
                  std::unordered_set<std::string>& files) {
  if (!part.file.empty()) file.bad(name + " names a file and shards");
  if (part.samples == 0 || part.dropped < 0) file.bad(name + " claims fewer samples than its shards");
  for (const auto& shard : part.shards) {
    if (!is_plain(shard.file) || !is_recording_file(shard.file)) {
      file.bad(c10::str(name, " names the shard \"", shard.file, "\", which is no name of one"));
    }
    if (shard.samples <= 0 || shard.bytes <= 0 || shard.slot < -1) {
      file.bad(c10::str("the shard \"", shard.file, "\" claims ", shard.samples, " samples and ", shard.bytes,
                        " bytes"));
    }
    if (!files.insert(shard.file).second) {
      file.bad(c10::str("the file \"", shard.file, "\" is named twice"));
    }
  }
}

void check_manifest(const InputFile& file, const Manifest& manifest) {
  const auto size = static_cast<std::int64_t>(manifest.entries.size());
  if (manifest.count != size) {
    file.bad(c10::str("it claims ", manifest.count, " entries and lists ", size));
  }
  std::unordered_set<std::string> files;
  for (std::int64_t i = 0; i < size; ++i) {
    const Description& part = manifest.entries[static_cast<std::size_t>(i)];
    const std::string name = named(static_cast<std::size_t>(i), part.path);
    if (part.index != i) file.bad(c10::str(name, " claims to be entry ", part.index));
    if (part.samples < 0) file.bad(c10::str(name, " claims ", part.samples, " samples"));
    if (part.bytes < 0 || part.number < 0) file.bad(name + " claims a negative size");
    if (!part.shards.empty()) {
      check_shards(file, name, part, files);
      continue;
    }
    if (part.file.empty()) {
      if (part.samples > 0) file.bad(c10::str(name, " claims ", part.samples, " samples and names no file"));
      continue;
    }
    if (part.samples == 0) file.bad(name + " claims 0 samples and names a file");
    if (!is_plain(part.file)) {
      file.bad(c10::str(name, " names the file \"", part.file,
                        "\", which is not a plain name in the recording's directory"));
    }
    if (!files.insert(part.file).second) {
      file.bad(c10::str("two entries name the file \"", part.file, "\""));
    }
  }
}

std::string joined(const std::string& directory, const std::string& name) {
  return directory.empty() || directory.back() == '/' ? directory + name : directory + "/" + name;
}

void check_size(const std::string& path, int directory, const std::string& name, std::int64_t claimed) {
  const auto bytes = InputFile::open_at("load", directory, name, joined(path, name)).size();
  if (bytes != static_cast<std::uint64_t>(claimed)) {
    bad_file("load", joined(path, name),
             c10::str("it has ", bytes, " bytes, and the manifest says ", claimed,
                      "; it was truncated or replaced"));
  }
}

bool exists_in(int directory, const char* name) {
  struct stat status {};
  return ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

/// What the journal knows and the manifest does not.
void merge_journal(const std::string& path, Manifest& manifest, Journal journal,
                   std::vector<std::string>& damage) {
  std::unordered_set<std::string> known;
  for (const auto& entry : manifest.entries) {
    for (const auto& shard : entry.shards) known.insert(shard.file);
  }
  for (std::size_t i = 0; i < journal.entries.size(); ++i) {
    SpooledEntry& said = journal.entries[i];
    if (i >= manifest.entries.size()) {
      manifest.entries.push_back(describe(said, i));
    } else {
      Description& part = manifest.entries[i];
      // A journal that goes on with a recording does not name again what the manifest does.
      if (!said.path.empty() && (said.path != part.path || said.kind != part.kind)) {
        damage.push_back(
            c10::str("journal and manifest of \"", path, "\" disagree on ", named(i, part.path)));
        continue;
      }
      SpooledEntry whole{part.path, part.aliases, part.type, part.kind, part.shards, part.dropped};
      for (auto& shard : said.shards) {
        if (known.insert(shard.file).second) whole.shards.push_back(std::move(shard));
      }
      part = describe(whole, i);
    }
  }
  manifest.count = static_cast<std::int64_t>(manifest.entries.size());
}

/// Manifest and journal of an open directory; without either, an error. With `lenient`, what is wrong with
/// them is listed instead of thrown.
Manifest read_manifest(const std::string& call, const std::string& path, int directory, bool lenient,
                       Contents& contents) {
  contents.has_manifest = exists_in(directory, "manifest.json");
  contents.has_journal = exists_in(directory, kJournal);
  if (!contents.has_manifest && !contents.has_journal) {
    bad_file(
        call, path,
        "the directory has no manifest.json, so it is not a recording that save wrote; load its .pt files "
        "one at a time with load or load_value");
  }
  Manifest manifest;
  if (contents.has_manifest) {
    const InputFile file =
        InputFile::open_at(call, directory, "manifest.json", joined(path, "manifest.json"));
    try {
      manifest = from_json(file);
      check_manifest(file, manifest);
    } catch (const c10::Error& error) {
      if (!lenient) throw;
      contents.damage.push_back(error.what_without_backtrace());
      manifest = Manifest();
    }
  }
  if (contents.has_journal) {
    const InputFile file = InputFile::open_at(call, directory, kJournal, joined(path, kJournal));
    Journal journal = read_journal(file);
    contents.open = journal.open;
    contents.damage.insert(contents.damage.end(), journal.damage.begin(), journal.damage.end());
    if (!contents.has_manifest) {
      manifest.library = journal.library;
      manifest.created = journal.created;
    }
    merge_journal(path, manifest, std::move(journal), contents.damage);
    try {
      check_manifest(file, manifest);
    } catch (const c10::Error& error) {
      if (!lenient) throw;
      contents.damage.push_back(error.what_without_backtrace());
      manifest = Manifest();
    }
    if (!lenient && !contents.damage.empty()) {
      file.bad(contents.damage.front() + "; torchtap recover, or storage::recover, says what is left");
    }
  }
  contents.created = manifest.created;
  return manifest;
}

Recording load_directory(const std::string& path, Descriptor fd, const LoadOptions& options) {
  auto folder = std::make_shared<Folder>();
  folder->options = options;
  folder->path = path;
  folder->fd = std::move(fd);
  Contents contents;
  Manifest manifest = read_manifest("load", path, folder->fd.get(), false, contents);
  std::vector<RecordedEntry> entries;
  entries.reserve(manifest.entries.size());
  for (auto& part : manifest.entries) {
    if (!part.file.empty()) check_size(path, folder->fd.get(), part.file, part.bytes);
    for (const auto& shard : part.shards) check_size(path, folder->fd.get(), shard.file, shard.bytes);
    entries.emplace_back(folder, std::make_shared<Description>(std::move(part)));
  }
  return Recording(std::move(entries), manifest.library, manifest.created, !contents.has_journal);
}

Recording load_file(const std::string& path, const LoadOptions& options) {
  const core::Value value = read_value(InputFile::open("load", path), options.mmap());
  Entry entry;
  const std::string name = path.substr(path.rfind('/') + 1);
  const bool suffix = name.size() > 3 && name.compare(name.size() - 3, 3, ".pt") == 0;
  entry.path = suffix ? name.substr(0, name.size() - 3) : name;
  entry.samples = value.is_list() ? static_cast<std::int64_t>(value.list().size()) : 1;
  entry.value = value;
  Description part = describe(entry, 0);
  part.file = name;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) part.bytes = static_cast<std::int64_t>(status.st_size);
  auto folder = std::make_shared<Folder>();
  folder->options = options;
  const auto slash = path.rfind('/');
  folder->path = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::vector<RecordedEntry> entries;
  entries.emplace_back(std::move(folder), std::make_shared<Description>(std::move(part)));
  return Recording(std::move(entries), "", "");
}

/// Opens the directory, or the one that a save, killed between two renames, left aside for it.
Descriptor open_directory(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid() || errno != ENOENT) return fd;
  try {
    const Target target = resolve("load", path, false);
    fd = Descriptor(::open(target.backup_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  } catch (const c10::Error&) {
  }
  errno = ENOENT;
  return fd;
}

bool still_there(const Descriptor& fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace

Contents read_contents(const std::string& call, const std::string& path, int directory, bool lenient) {
  Contents contents;
  Manifest manifest = read_manifest(call, path, directory, lenient, contents);
  for (auto& part : manifest.entries) {
    SpooledEntry entry{part.path, part.aliases, part.type, part.kind, part.shards, part.dropped};
    if (!part.file.empty()) {
      TORCH_CHECK_VALUE(
          (part.reduction.empty() && part.holds == "list") || (lenient && !contents.has_journal), call, ": ",
          named(static_cast<std::size_t>(part.index), part.path), " of \"", path, "\" holds ",
          part.reduction.empty() ? "no list of samples" : part.reduction,
          ", and samples can only be appended to samples.");
      entry.shards.push_back(
          {part.file, -1, part.samples, part.bytes, part.holds, part.dtype, part.shape, part.ragged});
    }
    contents.entries.push_back(std::move(entry));
  }
  return contents;
}

void write_manifest(const std::string& call, const std::string& path, int directory,
                    const std::string& created, const std::vector<SpooledEntry>& entries, bool sync) {
  Manifest manifest;
  manifest.created = created;
  manifest.count = static_cast<std::int64_t>(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) manifest.entries.push_back(describe(entries[i], i));
  const std::string json = to_json(manifest);
  constexpr const char* kTemporary = "manifest.json.part";
  ::unlinkat(directory, kTemporary, 0);
  Descriptor fd(::openat(directory, kTemporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) io_error(call, "create", joined(path, kTemporary), errno);
  OutputFile file(call, joined(path, kTemporary), std::move(fd));
  file.write(json.data(), json.size());
  file.close(sync);
  if (::renameat(directory, kTemporary, directory, "manifest.json") != 0) {
    io_error(call, "replace", joined(path, "manifest.json"), errno);
  }
  if (sync && ::fsync(directory) != 0 && errno != EINVAL && errno != ENOTSUP)
    io_error(call, "fsync", path, errno);
}

}  // namespace detail

void save(const std::string& directory, const std::vector<Entry>& entries, const SaveOptions& options) {
  for (std::size_t i = 0; i < entries.size(); ++i) detail::check_entry(entries[i], i);
  save(
      directory, entries.size(), [&](std::size_t i) { return entries[i]; }, options);
}

void save(const std::string& directory, std::size_t count, const std::function<Entry(std::size_t)>& make,
          const SaveOptions& options) {
  const detail::Target target = detail::resolve("save", directory, options.mkdir());
  try {
    detail::recover(target);
    struct stat status {};
    TORCH_CHECK_VALUE(options.mkdir() || ::lstat(target.path().c_str(), &status) == 0, "save: \"", directory,
                      "\" does not exist. Create the directory first, or pass SaveOptions().mkdir(true).");
    detail::check_place(target.path(), options.overwrite());
    detail::sweep(target);
    detail::Staging staging("save", target, detail::Staging::Kind::directory);
    detail::Manifest manifest;
    manifest.created = detail::utc_now();
    manifest.count = static_cast<std::int64_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Entry entry = make(i);
      detail::check_entry(entry, i);
      detail::Description part = detail::describe(entry, i);
      if (entry.samples > 0) {
        part.file = std::to_string(i) + ".pt";
        detail::OutputFile file = staging.create(part.file);
        detail::write_value(file, entry.value, entry.state);
        part.bytes = static_cast<std::int64_t>(file.size());
        file.close(options.sync());
      }
      manifest.entries.push_back(std::move(part));
    }
    const std::string json = detail::to_json(manifest);
    detail::OutputFile file = staging.create("manifest.json");
    file.write(json.data(), json.size());
    file.close(options.sync());
    staging.put(options.overwrite(), options.sync());
  } catch (...) {
    target.undo();
    throw;
  }
}

RecordedEntry::RecordedEntry(std::shared_ptr<const detail::Folder> folder,
                             std::shared_ptr<const detail::Description> description)
    : folder_(std::move(folder)), description_(std::move(description)) {}

std::int64_t RecordedEntry::index() const noexcept {
  return description_->index;
}
const std::string& RecordedEntry::path() const noexcept {
  return description_->path;
}
const std::vector<std::string>& RecordedEntry::aliases() const noexcept {
  return description_->aliases;
}
const std::string& RecordedEntry::type() const noexcept {
  return description_->type;
}
const std::string& RecordedEntry::kind() const noexcept {
  return description_->kind;
}
std::int64_t RecordedEntry::samples() const noexcept {
  return description_->samples;
}
const std::string& RecordedEntry::reduction() const noexcept {
  return description_->reduction;
}
std::int64_t RecordedEntry::bytes() const noexcept {
  return description_->bytes;
}
std::int64_t RecordedEntry::number() const noexcept {
  return description_->number;
}
const std::vector<std::string>& RecordedEntry::keys() const noexcept {
  return description_->keys;
}
const std::string& RecordedEntry::dtype() const noexcept {
  return description_->dtype;
}
const std::vector<std::int64_t>& RecordedEntry::shape() const noexcept {
  return description_->shape;
}

std::string RecordedEntry::file() const {
  return description_->file.empty() ? "" : detail::joined(folder_->path, description_->file);
}

bool RecordedEntry::ragged() const noexcept {
  return description_->ragged;
}

detail::InputFile RecordedEntry::open(const std::string& call, const std::string& name) const {
  const std::string path = detail::joined(folder_->path, name);
  return folder_->fd.valid() ? detail::InputFile::open_at(call, folder_->fd.get(), name, path)
                             : detail::InputFile::open(call, path);
}

core::Value RecordedEntry::read(const std::string& name) const {
  return detail::read_value(open("RecordedEntry::value", name), folder_->options.mmap());
}

std::vector<core::SavedSink> RecordedEntry::state() const {
  if (description_->file.empty()) return {};
  return detail::read_state(open("RecordedEntry::state", description_->file));
}

std::vector<at::Tensor> RecordedEntry::read_shard(const RecordedShard& shard) const {
  const core::Value value = read(shard.file);
  const bool stacked = value.is_tensor() && value.tensor().dim() > 0;
  const std::int64_t found = stacked           ? value.tensor().size(0)
                             : value.is_list() ? static_cast<std::int64_t>(value.list().size())
                                               : -1;
  if (found != shard.samples) {
    detail::bad_file(
        "RecordedEntry::value", detail::joined(folder_->path, shard.file),
        c10::str("it holds ", value.describe(), ", and the manifest says ", shard.samples, " samples"));
  }
  if (stacked) return value.tensor().unbind(0);
  std::vector<at::Tensor> samples;
  samples.reserve(value.list().size());
  for (const auto& item : value.list()) samples.push_back(item.is_none() ? at::Tensor() : item.tensor());
  return samples;
}

std::vector<RecordedShard> RecordedEntry::shards() const {
  std::vector<RecordedShard> shards;
  for (const auto& shard : description_->shards) {
    shards.push_back({shard.file, shard.slot, shard.samples, shard.bytes});
  }
  return shards;
}

std::int64_t RecordedEntry::dropped() const noexcept {
  return description_->dropped;
}

SampleRange RecordedEntry::samples_range(std::int64_t slot) const {
  return SampleRange(*this, slot);
}

core::Value RecordedEntry::value() const {
  if (!description_->shards.empty()) {
    const auto list = [&](std::int64_t slot) {
      core::Value::List samples;
      for (const auto& sample : samples_range(slot)) {
        samples.push_back(sample.defined() ? core::Value(sample) : core::Value());
      }
      return core::Value(std::move(samples));
    };
    if (description_->holds == "list") return list(-1);
    core::Value::Dict slots;
    for (const auto& key : keys()) slots.emplace_back(key, list(std::stoll(key)));
    return slots;
  }
  if (description_->file.empty()) return {};
  core::Value value = read(description_->file);
  if (detail::holds(value) != description_->holds) {
    detail::bad_file("RecordedEntry::value", file(),
                     c10::str("it holds ", value.describe(), ", and the manifest says it holds \"",
                              description_->holds, "\""));
  }
  return value;
}

struct SampleRange::Cursor {
  RecordedEntry entry;
  std::vector<RecordedShard> shards;
  std::size_t shard = 0;
  std::vector<at::Tensor> samples;
  std::size_t position = 0;

  /// Reads on until there is a sample; false at the end.
  bool load() {
    while (position == samples.size()) {
      position = 0;
      samples.clear();
      if (shard == shards.size()) return false;
      samples = entry.read_shard(shards[shard++]);
    }
    return true;
  }
};

SampleRange::SampleRange(RecordedEntry entry, std::int64_t slot) : entry_(std::move(entry)), slot_(slot) {}

SampleRange::Iterator SampleRange::begin() const {
  auto cursor = std::make_shared<Cursor>(Cursor{entry_, {}, 0, {}, 0});
  for (auto& shard : entry_.shards()) {
    if (shard.slot == slot_) cursor->shards.push_back(std::move(shard));
  }
  if (entry_.shards().empty() && entry_.samples() > 0) {  // one file holds them all
    cursor->samples = slot_ < 0 ? entry_.tensors() : entry_.value().at(std::to_string(slot_)).tensors();
  }
  Iterator iterator;
  if (cursor->load()) iterator.cursor_ = std::move(cursor);
  return iterator;
}

const at::Tensor& SampleRange::Iterator::operator*() const {
  return cursor_->samples[cursor_->position];
}

SampleRange::Iterator& SampleRange::Iterator::operator++() {
  cursor_->samples[cursor_->position++] = at::Tensor();  // what was seen need not stay in memory
  if (!cursor_->load()) cursor_.reset();
  return *this;
}

at::Tensor RecordedEntry::tensor() const {
  TORCH_CHECK_VALUE(samples() > 0,
                    "RecordedEntry::tensor: ", detail::named(static_cast<std::size_t>(index()), path()),
                    " recorded no samples, so there is no tensor; ask samples() first.");
  const core::Value loaded = value();
  TORCH_CHECK_TYPE(loaded.is_tensor(),
                   "RecordedEntry::tensor: ", detail::named(static_cast<std::size_t>(index()), path()),
                   " holds ", loaded.describe(),
                   loaded.is_list()   ? "; call tensors()."
                   : loaded.is_dict() ? "; call tensor(key)."
                                      : ".");
  return loaded.tensor();
}

at::Tensor RecordedEntry::tensor(const std::string& key) const {
  TORCH_CHECK_VALUE(samples() > 0, "RecordedEntry::tensor(\"", key,
                    "\"): ", detail::named(static_cast<std::size_t>(index()), path()),
                    " recorded no samples, so there is no tensor; ask samples() first.");
  return value().at(key).tensor();
}

std::vector<at::Tensor> RecordedEntry::tensors() const {
  if (samples() == 0) return {};
  const core::Value loaded = value();
  std::vector<at::Tensor> result;
  if (!loaded.is_list()) return loaded.tensors();
  for (const auto& item : loaded.list()) result.push_back(item.is_none() ? at::Tensor() : item.tensor());
  return result;
}

Recording::Recording(std::vector<RecordedEntry> entries, std::string library, std::string created,
                     bool complete)
    : entries_(std::move(entries)),
      library_(std::move(library)),
      created_(std::move(created)),
      complete_(complete) {}

const RecordedEntry& Recording::at(std::int64_t index) const {
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(size()), "Recording::at: index ", index,
                    " is out of range; there are ", size(), " entries.");
  return entries_[static_cast<std::size_t>(index)];
}

const RecordedEntry& Recording::at(const std::string& name) const {
  const RecordedEntry* found = nullptr;
  std::vector<std::string> all;
  for (const auto& entry : entries_) {
    const bool matches = entry.path() == name || std::find(entry.aliases().begin(), entry.aliases().end(),
                                                           name) != entry.aliases().end();
    TORCH_CHECK_INDEX(!matches || found == nullptr, "Recording::at: entries ",
                      found == nullptr ? 0 : found->index(), " and ", entry.index(), " are both called \"",
                      name, "\"; ask by index.");
    if (matches) found = &entry;
    all.push_back(entry.path());
    all.insert(all.end(), entry.aliases().begin(), entry.aliases().end());
  }
  TORCH_CHECK_INDEX(found != nullptr, "Recording::at: no entry is called \"", name, "\"; the nearest are ",
                    core::quoted(core::nearest(name, all)), ".");
  return *found;
}

std::vector<std::string> Recording::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& entry : entries_) names.push_back(entry.path());
  return names;
}

Recording load(const std::string& path, const LoadOptions& options) {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    detail::Descriptor fd = detail::open_directory(path);
    if (!fd.valid()) {
      if (errno == ENOTDIR) return detail::load_file(path, options);
      detail::bad_file(
          "load", path,
          errno == ENOENT ? "there is no such file or directory" : std::generic_category().message(errno));
    }
    const detail::Descriptor kept(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    try {
      return detail::load_directory(path, std::move(fd), options);
    } catch (const c10::Error&) {
      // Replaced by a newer recording while its files were being looked up: that one then.
      if (attempt == kAttempts || detail::still_there(kept, path)) throw;
    }
  }
}

}  // namespace torchtap::storage
