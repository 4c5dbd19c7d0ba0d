// Loads recordings and reads their entries.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/storage/detail/contents.hpp>
#include <torchtap/storage/detail/folder.hpp>
#include <torchtap/storage/detail/manifest_check.hpp>
#include <torchtap/storage/detail/pt.hpp>
#include <torchtap/storage/recording.hpp>

namespace torchtap::storage {
namespace detail {
namespace {

void check_size(const std::string& path, int directory, const std::string& name, std::int64_t claimed) {
  const auto bytes = base::InputFile::open_at("load", directory, name, base::joined_path(path, name)).size();
  if (bytes != static_cast<std::uint64_t>(claimed)) {
    base::bad_file("load", base::joined_path(path, name),
                   c10::str("it has ", bytes, " bytes, and the manifest says ", claimed,
                            "; it was truncated or replaced"));
  }
}

Recording load_directory(const std::string& path, base::Descriptor fd, const LoadOptions& options) {
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
  const core::Value value = read_value(base::InputFile::open("load", path), options);
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

/// Opens the directory, or its backup if a save was killed between two renames.
base::Descriptor open_directory(const std::string& path) {
  base::Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid() || errno != ENOENT) return fd;
  try {
    const base::Target target = base::resolve("load", path, false);
    fd = base::Descriptor(
        ::open(target.backup_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  } catch (const c10::Error&) {
  }
  errno = ENOENT;
  return fd;
}

bool still_there(const base::Descriptor& fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace
}  // namespace detail

RecordedEntry::RecordedEntry(std::shared_ptr<const detail::Folder> folder,
                             std::shared_ptr<const detail::Description> description)
    : folder_(std::move(folder)), description_(std::move(description)) {}

std::int64_t RecordedEntry::index() const noexcept {
  return description_->index;
}
const EntryId& RecordedEntry::id() const& noexcept {
  return *description_;
}
const std::string& RecordedEntry::path() const& noexcept {
  return description_->path;
}
const std::vector<std::string>& RecordedEntry::aliases() const& noexcept {
  return description_->aliases;
}
const std::string& RecordedEntry::type() const& noexcept {
  return description_->type;
}
const std::string& RecordedEntry::kind() const& noexcept {
  return description_->kind;
}
std::int64_t RecordedEntry::samples() const noexcept {
  return description_->samples;
}
const std::string& RecordedEntry::reduction() const& noexcept {
  return description_->reduction;
}
const std::string& RecordedEntry::note() const& noexcept {
  return description_->note;
}
std::int64_t RecordedEntry::bytes() const noexcept {
  return description_->bytes;
}
std::int64_t RecordedEntry::number() const noexcept {
  return description_->number;
}
const std::vector<std::string>& RecordedEntry::keys() const& noexcept {
  return description_->keys;
}
const std::string& RecordedEntry::dtype() const& noexcept {
  return description_->form.dtype;
}
const std::vector<std::int64_t>& RecordedEntry::shape() const& noexcept {
  return description_->form.shape;
}

const std::string& RecordedEntry::directory() const& noexcept {
  return folder_->path;
}

std::string RecordedEntry::file() const {
  return description_->file.empty() ? "" : base::joined_path(folder_->path, description_->file);
}

bool RecordedEntry::ragged() const noexcept {
  return description_->form.ragged;
}

base::InputFile RecordedEntry::open(const std::string& call, const std::string& name) const {
  const std::string path = base::joined_path(folder_->path, name);
  return folder_->fd.valid() ? base::InputFile::open_at(call, folder_->fd.get(), name, path)
                             : base::InputFile::open(call, path);
}

std::vector<core::SavedSink> RecordedEntry::state() const {
  if (description_->file.empty()) return {};
  return detail::read_state(open("storage::RecordedEntry::state", description_->file));
}

/// The samples of a shard, as a tensor if they are stacked.
core::Value RecordedEntry::read_shard(const RecordedShard& shard) const {
  const base::InputFile file = open("storage::RecordedEntry::value", shard.file);
  core::Value value = detail::read_value(file, folder_->options);
  const auto& shards = description_->shards;
  detail::check_shard(
      file,
      *std::find_if(shards.begin(), shards.end(), [&](const auto& said) { return said.file == shard.file; }),
      value);
  return value;
}

std::vector<RecordedShard> RecordedEntry::shards() const {
  std::vector<RecordedShard> shards;
  for (const auto& shard : description_->shards) {
    shards.push_back(
        {shard.file, shard.slot < 0 ? std::nullopt : std::optional(shard.slot), shard.samples, shard.bytes});
  }
  return shards;
}

std::int64_t RecordedEntry::dropped() const noexcept {
  return description_->not_recorded.dropped;
}
const core::NotRecorded& RecordedEntry::not_recorded() const& noexcept {
  return description_->not_recorded;
}

SampleRange RecordedEntry::each_tensor(std::optional<std::int64_t> slot) const {
  return SampleRange(*this, slot);
}

core::Value RecordedEntry::value() const {
  if (!description_->shards.empty()) {
    const auto list = [&](std::optional<std::int64_t> slot) {
      core::Value::List samples;
      for (const auto& sample : each_tensor(slot)) {
        samples.push_back(sample.defined() ? core::Value(sample) : core::Value());
      }
      return core::Value(std::move(samples));
    };
    if (description_->holds == "list") return list(std::nullopt);
    core::Value::Dict slots;
    for (const auto& key : keys()) slots.emplace_back(key, list(std::stoll(key)));
    return slots;
  }
  if (!folder_->values.empty()) return folder_->values[static_cast<std::size_t>(index())];
  if (description_->file.empty()) return {};
  const base::InputFile file = open("storage::RecordedEntry::value", description_->file);
  core::Value value = detail::read_value(file, folder_->options);
  // A single file has no manifest to compare with.
  if (folder_->fd.valid()) detail::check_value(file, *description_, value);
  return value;
}

/// Reads the samples file by file. A stacked shard makes one tensor at a time, because a tensor object takes
/// far more memory than a small sample.
struct SampleRange::Cursor {
  RecordedEntry entry;
  std::vector<RecordedShard> shards;
  std::size_t shard = 0;
  core::Value file;
  std::int64_t size = 0;  // of `file`
  std::int64_t position = 0;
  at::Tensor sample;

  Cursor(const RecordedEntry& of, std::optional<std::int64_t> slot) : entry(of) {
    for (auto& one : entry.shards()) {
      if (one.slot == slot) shards.push_back(std::move(one));
    }
    if (entry.shards().empty() && entry.samples() > 0) {  // one file holds them all
      open(slot ? entry.value().at(std::to_string(*slot)) : entry.value());
    }
  }

  /// Opens the next shard; false at the end.
  bool next_shard() {
    if (shard == shards.size()) return false;
    file = core::Value();  // before the next one is in memory
    open(entry.read_shard(shards[shard++]));
    return true;
  }
  void open(core::Value value) {
    if (shards.empty() && !value.is_list()) {  // a single tensor
      core::Value::List list;
      for (auto& tensor : value.tensors()) list.emplace_back(std::move(tensor));
      value = core::Value(std::move(list));
    }
    file = std::move(value);
    size = file.is_tensor() ? file.tensor().size(0) : static_cast<std::int64_t>(file.list().size());
    position = 0;
  }
  /// Reads on until there is a sample; false at the end.
  bool load() {
    while (position == size) {
      if (!next_shard()) return false;
    }
    if (file.is_tensor()) {
      sample = file.tensor().select(0, position);
    } else {
      const core::Value& item = file.list()[static_cast<std::size_t>(position)];
      sample = item.is_none() ? at::Tensor() : item.tensor();
    }
    return true;
  }
};

SampleRange::SampleRange(RecordedEntry entry, std::optional<std::int64_t> slot)
    : entry_(std::move(entry)), slot_(slot) {
  TORCH_CHECK_VALUE(!slot || *slot >= 0,
                    "storage::RecordedEntry::each_tensor: slots are numbered from 0, got ", slot.value_or(0),
                    ".");
}

SampleRange::Iterator SampleRange::begin() const {
  auto cursor = std::make_shared<Cursor>(entry_, slot_);
  Iterator iterator;
  if (cursor->load()) iterator.cursor_ = std::move(cursor);
  return iterator;
}

void SampleRange::each_block(const std::function<void(const at::Tensor&)>& visit) const {
  Cursor cursor(entry_, slot_);
  do {
    if (cursor.file.is_tensor()) {
      visit(cursor.file.tensor());
    } else if (cursor.file.is_list()) {
      for (const auto& item : cursor.file.list()) {
        if (!item.is_none()) visit(item.tensor().unsqueeze(0));
      }
    }
  } while (cursor.next_shard());
}

const at::Tensor& SampleRange::Iterator::operator*() const {
  return cursor_->sample;
}

SampleRange::Iterator& SampleRange::Iterator::operator++() {
  ++cursor_->position;
  if (!cursor_->load()) cursor_.reset();
  return *this;
}

at::Tensor RecordedEntry::tensor() const {
  TORCH_CHECK_VALUE(samples() > 0, "storage::RecordedEntry::tensor: ",
                    detail::named(static_cast<std::size_t>(index()), path()),
                    " recorded no samples, so there is no tensor; ask samples() first.");
  const core::Value loaded = value();
  TORCH_CHECK_TYPE(loaded.is_tensor(), "storage::RecordedEntry::tensor: ",
                   detail::named(static_cast<std::size_t>(index()), path()), " holds ", loaded.describe(),
                   loaded.is_list()   ? "; call tensors()."
                   : loaded.is_dict() ? "; call tensor(key)."
                                      : ".");
  return loaded.tensor();
}

at::Tensor RecordedEntry::tensor(const std::string& key) const {
  TORCH_CHECK_VALUE(samples() > 0, "storage::RecordedEntry::tensor(\"", key,
                    "\"): ", detail::named(static_cast<std::size_t>(index()), path()),
                    " recorded no samples, so there is no tensor; ask samples() first.");
  return value().at(key).tensor();
}

std::vector<at::Tensor> RecordedEntry::tensors() const {
  if (samples() == 0) return {};
  const core::Value loaded = value();
  std::vector<at::Tensor> result;
  if (!loaded.is_list()) return loaded.tensors();
  result.reserve(loaded.list().size());
  for (const auto& item : loaded.list()) result.push_back(item.is_none() ? at::Tensor() : item.tensor());
  return result;
}

Recording::Recording(std::vector<RecordedEntry> entries, std::string library, std::string created,
                     bool complete)
    : entries_(std::move(entries)),
      library_(std::move(library)),
      created_(std::move(created)),
      complete_(complete) {}

const RecordedEntry& Recording::at(std::int64_t index) const& {
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(size()), "storage::Recording::at: index ",
                    index, " is out of range; there are ", size(), " entries.");
  return entries_[static_cast<std::size_t>(index)];
}

const RecordedEntry& Recording::at(const std::string& name) const& {
  const auto rank = [](const RecordedEntry& entry) {
    return is_calls(entry.kind()) ? 2 : is_beside(entry.kind()) ? 1 : 0;
  };
  const RecordedEntry* found = nullptr;
  std::vector<std::string> all;
  for (const auto& entry : entries_) {
    const bool matches = entry.path() == name || std::find(entry.aliases().begin(), entry.aliases().end(),
                                                           name) != entry.aliases().end();
    if (matches && (found == nullptr || rank(*found) > rank(entry))) {
      found = &entry;
    } else {
      TORCH_CHECK_INDEX(!matches || rank(*found) < rank(entry), "storage::Recording::at: entries ",
                        found == nullptr ? 0 : found->index(), " and ", entry.index(), " are both called \"",
                        name, "\"; ask by index.");
    }
    all.push_back(entry.path());
    all.insert(all.end(), entry.aliases().begin(), entry.aliases().end());
  }
  TORCH_CHECK_INDEX(found != nullptr, "storage::Recording::at: no entry is called \"", name,
                    "\"; the nearest are ", base::quoted(base::nearest(name, all)), ".");
  return *found;
}

std::vector<std::string> Recording::paths() const {
  std::vector<std::string> paths;
  paths.reserve(entries_.size());
  for (const auto& entry : entries_) paths.push_back(entry.path());
  return paths;
}

Recording in_memory(const std::vector<Entry>& entries) {
  auto folder = std::make_shared<detail::Folder>();
  std::vector<RecordedEntry> recorded;
  for (const Entry& entry : entries) {
    detail::Description part = detail::describe(entry, recorded.size());
    detail::each_tensor(entry.value, [&](const at::Tensor& tensor) {
      part.bytes += static_cast<std::int64_t>(tensor.nbytes());
    });
    folder->values.push_back(entry.value);
    recorded.emplace_back(folder, std::make_shared<const detail::Description>(std::move(part)));
  }
  return Recording(std::move(recorded), "", "");
}

Recording load(const std::string& path, const LoadOptions& options) {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    base::Descriptor fd = detail::open_directory(path);
    if (!fd.valid()) {
      if (errno == ENOTDIR) return detail::load_file(path, options);
      base::bad_file(
          "load", path,
          errno == ENOENT ? "there is no such file or directory" : std::generic_category().message(errno));
    }
    const base::Descriptor kept(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    try {
      return detail::load_directory(path, std::move(fd), options);
    } catch (const c10::Error&) {
      // A newer recording replaced this one while its files were checked: load the newer one.
      if (attempt == kAttempts || detail::still_there(kept, path)) throw;
    }
  }
}

}  // namespace torchtap::storage
