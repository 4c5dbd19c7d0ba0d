// Merges the journal of a recording into its manifest, and writes manifests.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_set>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/contents.hpp>
#include <torchtap/storage/detail/format.hpp>
#include <torchtap/storage/detail/manifest_check.hpp>
#include <torchtap/storage/detail/recording_files.hpp>

namespace torchtap::storage::detail {
namespace {

/// Adds the journal's further entries to the manifest.
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
      // The journal of a continued recording does not repeat entries of the manifest.
      if (!said.path.empty() && (said.path != part.path || said.kind != part.kind)) {
        damage.push_back(
            c10::str("journal and manifest of \"", path, "\" disagree on ", named(i, part.path)));
        continue;
      }
      SpooledEntry whole = part.spooled();
      for (auto& shard : said.shards) {
        if (known.insert(shard.file).second) whole.shards.push_back(std::move(shard));
      }
      if (!said.not_recorded.empty()) whole.not_recorded = std::move(said.not_recorded);
      part = describe(whole, i);
    }
  }
  manifest.count = static_cast<std::int64_t>(manifest.entries.size());
}

bool exists_in(const std::string& call, const std::string& path, int directory, const char* name) {
  struct stat status {};
  if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (errno != ENOENT) base::io_error(call, "read", base::joined_path(path, name), errno);
  return false;
}

}  // namespace

Manifest read_manifest(const std::string& call, const std::string& path, int directory, bool lenient,
                       Contents& contents) {
  contents.has_manifest = exists_in(call, path, directory, kManifest);
  contents.has_journal = exists_in(call, path, directory, kJournal);
  if (!contents.has_manifest && !contents.has_journal) {
    base::bad_file(
        call, path,
        "the directory has no manifest.json, so it is not a recording that save wrote; load its .pt files "
        "one at a time with load or load_value");
  }
  Manifest manifest;
  if (contents.has_manifest) {
    const base::InputFile file =
        base::InputFile::open_at(call, directory, kManifest, base::joined_path(path, kManifest));
    try {
      manifest = from_json(file);
      check_manifest(file, manifest, lenient ? &contents.damage : nullptr);
    } catch (const NewerFormat&) {
      throw;  // must not be repaired
    } catch (const c10::Error& error) {
      if (!lenient) throw;
      contents.damage.push_back(error.what_without_backtrace());
      manifest = Manifest();
    }
  }
  if (contents.has_journal) {
    const base::InputFile file =
        base::InputFile::open_at(call, directory, kJournal, base::joined_path(path, kJournal));
    Journal journal = read_journal(file, manifest.entries.size());
    contents.open = std::move(journal.open);
    contents.damage.insert(contents.damage.end(), journal.damage.begin(), journal.damage.end());
    if (!contents.has_manifest) {
      manifest.library = journal.library;
      manifest.created = journal.created;
    }
    merge_journal(path, manifest, std::move(journal), contents.damage);
    try {
      check_manifest(file, manifest, lenient ? &contents.damage : nullptr);
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

Contents read_contents(const std::string& call, const std::string& path, int directory, bool lenient) {
  Contents contents;
  Manifest manifest = read_manifest(call, path, directory, lenient, contents);
  for (auto& part : manifest.entries) {
    SpooledEntry entry = part.spooled();
    if (!part.file.empty()) {
      TORCH_CHECK_VALUE(
          (part.reduction.empty() && part.holds == "list") || (lenient && !contents.has_journal), call, ": ",
          named(static_cast<std::size_t>(part.index), part.path), " of \"", path, "\" holds ",
          part.reduction.empty() ? "no list of samples" : part.reduction,
          ", but samples can only be appended to a list of samples; choose another directory.");
      entry.shards.push_back({part.file, -1, part.samples, part.bytes, part.holds, part.form});
    }
    contents.entries.push_back(std::move(entry));
  }
  contents.described = std::move(manifest.entries);
  return contents;
}

std::string manifest_of(const std::string& created, const std::vector<SpooledEntry>& entries) {
  Manifest manifest;
  manifest.created = created;
  manifest.count = static_cast<std::int64_t>(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) manifest.entries.push_back(describe(entries[i], i));
  return to_json(std::move(manifest));
}

void write_manifest(const std::string& call, const std::string& path, int directory, const std::string& text,
                    bool sync) {
  constexpr const char* kTemporary = "manifest.json.part";
  ::unlinkat(directory, kTemporary, 0);
  base::Descriptor fd(
      ::openat(directory, kTemporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) base::io_error(call, "create", base::joined_path(path, kTemporary), errno);
  base::OutputFile file(call, base::joined_path(path, kTemporary), std::move(fd));
  file.write(text.data(), text.size());
  file.close(sync);
  if (::renameat(directory, kTemporary, directory, kManifest) != 0) {
    base::io_error(call, "replace", base::joined_path(path, kManifest), errno);
  }
  if (sync && ::fsync(directory) != 0 && errno != EINVAL && errno != ENOTSUP)
    base::io_error(call, "fsync", path, errno);
}

}  // namespace torchtap::storage::detail
