#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cerrno>
#include <ctime>
#include <sstream>
#include <system_error>
#include <torchtap/core/error.hpp>
#include <torchtap/storage/disk.hpp>
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

constexpr std::int64_t kSchema = 1;
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

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(index), CEREAL_NVP(path), CEREAL_NVP(aliases), CEREAL_NVP(type), CEREAL_NVP(kind),
            CEREAL_NVP(samples), CEREAL_NVP(reduction), CEREAL_NVP(holds), CEREAL_NVP(number),
            CEREAL_NVP(keys), CEREAL_NVP(dtype), CEREAL_NVP(shape), CEREAL_NVP(ragged), CEREAL_NVP(file),
            CEREAL_NVP(bytes));
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
  if (part.holds == "tensor") part.number = 1;
  if (part.holds == "list") part.number = static_cast<std::int64_t>(entry.value.list().size());
  if (part.holds == "dict") {
    part.number = static_cast<std::int64_t>(entry.value.dict().size());
    for (const auto& [key, item] : entry.value.dict()) part.keys.push_back(key);
  }
  bool first = true;
  each_tensor(entry.value, [&](const at::Tensor& tensor) {
    const std::string dtype = dtype_name(tensor.scalar_type());
    if (first) {
      part.dtype = dtype;
      part.shape = tensor.sizes().vec();
    }
    first = false;
    if (part.dtype != dtype) part.dtype = "mixed";
    if (part.ragged || part.shape.size() != tensor.sizes().size()) {
      part.ragged = true;
      part.shape.clear();
      return;
    }
    for (std::size_t i = 0; i < part.shape.size(); ++i) {
      if (part.shape[i] != tensor.sizes()[i]) part.shape[i] = -1;
    }
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

void check_entries(const std::vector<Entry>& entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const std::string where = c10::str("entry ", i);
    check_name(where, "path", entry.path);
    for (const auto& alias : entry.aliases) check_name(where, "alias", alias);
    check_name(where, "type", entry.type);
    check_name(where, "kind", entry.kind);
    check_name(where, "reduction", entry.reduction);
    const std::string name = named(i, entry.path);
    TORCH_CHECK_VALUE(entry.samples >= 0, "save: ", name, " claims ", entry.samples, " samples.");
    TORCH_CHECK_VALUE(entry.samples > 0 || is_empty(entry.value), "save: ", name,
                      " claims 0 samples but holds ", entry.value.describe(), "; count its samples.");
    check_value("save", name, entry.value);
  }
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
  const bool recording = std::find(names.begin(), names.end(), "manifest.json") != names.end();
  TORCH_CHECK_VALUE(recording || !foreign.empty(), "save: \"", path,
                    "\" holds .pt files but no manifest.json, so it is not a recording that may be replaced. "
                    "Choose another directory, or empty this one.");
  TORCH_CHECK_VALUE(foreign.empty(), "save: \"", path, "\" holds files that are no part of a recording (",
                    core::quoted(foreign), " …), and replacing the directory would lose them. ",
                    "Choose another directory, for example \"", path, "/recording\" with mkdir(true).");
  TORCH_CHECK_VALUE(overwrite, "save: \"", path,
                    "\" holds a recording already. Choose another directory, or pass "
                    "SaveOptions().overwrite(true).");
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

std::string to_json(const Manifest& manifest) {
  std::ostringstream stream;
  {
    cereal::JSONOutputArchive archive(stream);
    archive(cereal::make_nvp("schema", manifest.schema), cereal::make_nvp("library", manifest.library),
            cereal::make_nvp("created", manifest.created), cereal::make_nvp("count", manifest.count),
            cereal::make_nvp("entries", manifest.entries));
  }
  return stream.str() + "\n";
}

/// rapidjson reads nested brackets by recursion; a few thousand of them would end the stack.
void check_nesting(const InputFile& file, const std::string& text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepestManifest) file.bad("it nests deeper than any manifest; it is damaged");
  }
}

Manifest from_json(const InputFile& file) {
  const std::string text = file.read_all(kLargestManifest);
  check_nesting(file, text);
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
  } catch (const std::exception& error) {  // cereal::Exception, rapidjson's among them; std::length_error
    file.bad(std::string("it is no manifest of a recording, or damaged: ") + error.what());
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

Recording load_directory(const std::string& path, Descriptor fd, const LoadOptions& options) {
  auto folder = std::make_shared<Folder>();
  folder->options = options;
  folder->path = path;
  folder->fd = std::move(fd);
  struct stat status {};
  const bool manifest_there = ::fstatat(folder->fd.get(), "manifest.json", &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (!manifest_there && errno == ENOENT) {
    bad_file(
        "load", path,
        "the directory has no manifest.json, so it is not a recording that save wrote; load its .pt files "
        "one at a time with load or load_value");
  }
  const InputFile file =
      InputFile::open_at("load", folder->fd.get(), "manifest.json", joined(path, "manifest.json"));
  Manifest manifest = from_json(file);
  check_manifest(file, manifest);
  std::vector<RecordedEntry> entries;
  entries.reserve(manifest.entries.size());
  for (auto& part : manifest.entries) {
    if (!part.file.empty()) {
      const auto bytes =
          InputFile::open_at("load", folder->fd.get(), part.file, joined(path, part.file)).size();
      if (bytes != static_cast<std::uint64_t>(part.bytes)) {
        bad_file("load", joined(path, part.file),
                 c10::str("it has ", bytes, " bytes, and the manifest says ", part.bytes,
                          "; it was truncated or replaced"));
      }
    }
    entries.emplace_back(folder, std::make_shared<Description>(std::move(part)));
  }
  return Recording(std::move(entries), manifest.library, manifest.created);
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
}  // namespace detail

void save(const std::string& directory, const std::vector<Entry>& entries, const SaveOptions& options) {
  detail::check_entries(entries);
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
    manifest.count = static_cast<std::int64_t>(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      detail::Description part = detail::describe(entries[i], i);
      if (entries[i].samples > 0) {
        part.file = std::to_string(i) + ".pt";
        detail::OutputFile file = staging.create(part.file);
        detail::write_value(file, entries[i].value);
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

core::Value RecordedEntry::value() const {
  if (description_->file.empty()) return {};
  const std::string call = "RecordedEntry::value";
  const auto input = folder_->fd.valid()
                         ? detail::InputFile::open_at(call, folder_->fd.get(), description_->file, file())
                         : detail::InputFile::open(call, file());
  core::Value value = detail::read_value(input, folder_->options.mmap());
  if (detail::holds(value) != description_->holds) {
    input.bad(c10::str("it holds ", value.describe(), ", and the manifest says it holds \"",
                       description_->holds, "\""));
  }
  return value;
}

at::Tensor RecordedEntry::tensor() const {
  TORCH_CHECK_VALUE(!description_->file.empty(),
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
  TORCH_CHECK_VALUE(!description_->file.empty(), "RecordedEntry::tensor(\"", key,
                    "\"): ", detail::named(static_cast<std::size_t>(index()), path()),
                    " recorded no samples, so there is no tensor; ask samples() first.");
  return value().at(key).tensor();
}

std::vector<at::Tensor> RecordedEntry::tensors() const {
  if (description_->file.empty()) return {};
  const core::Value loaded = value();
  std::vector<at::Tensor> result;
  if (!loaded.is_list()) return loaded.tensors();
  for (const auto& item : loaded.list()) result.push_back(item.is_none() ? at::Tensor() : item.tensor());
  return result;
}

Recording::Recording(std::vector<RecordedEntry> entries, std::string library, std::string created)
    : entries_(std::move(entries)), library_(std::move(library)), created_(std::move(created)) {}

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
